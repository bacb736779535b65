//! Trust: the commands of a project that a person has agreed to run on this machine.
//!
//! The `.forge` folder of another person's repository names its tests, and a test is any program. So nothing of that
//! runs before a person has seen it and agreed. The agreement is for one clone and for the commands as shown. It is
//! kept outside of the repository, because a repository could bring a forged one. A command that comes in later, with
//! a pull for example, needs a new agreement.
//!
//! The agreement is about commands, not about what they run: to trust `cargo test` is to run the tests that the
//! repository has, today's and tomorrow's.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::{LinearMode, TrackerKind};
use crate::environment::Trust;
use crate::error::{Category, Error, Result};
use crate::knowledge::Knowledge;
use crate::layout::INIT;
use crate::project::Project;

/// The largest record that is read, in bytes.
const MAX_RECORD: u64 = 4 << 20;

/// A command in the files of a project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct TrustedCommand {
    /// What it is for.
    ///
    /// One of `verify.runner`, `verify.runners.<name>`, `verify.commands`, `invariant`, `linear`, `.forge/init.sh`.
    #[serde(rename = "for")]
    pub purpose: String,
    /// The command, or for a script its SHA-256.
    pub command: String,
}

/// The commands of a project, and whether they are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TrustState {
    /// Whether all of them are trusted.
    pub trusted: bool,
    /// The clone that is trusted.
    ///
    /// The repository's common folder, or the root of a project without git.
    pub clone: String,
    /// Every command.
    pub commands: Vec<TrustedCommand>,
    /// The commands that are not trusted yet.
    pub new: Vec<TrustedCommand>,
}

/// Trust record of one clone.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    clone: String,
    commands: BTreeSet<TrustedCommand>,
}

/// Returns the commands in the files of this project, and which of them are trusted.
///
/// # Errors
/// `Corrupt` if the knowledge, which holds invariants, is damaged; `Failed` if something cannot be read.
pub fn state(project: &Project) -> Result<TrustState> {
    let commands = trust_commands(project)?;
    let clone = trust_clone(project);
    let known = match &project.environment().trust {
        Trust::Everything => commands.clone(),
        Trust::Nothing => BTreeSet::new(),
        Trust::Kept(folder) => read(folder, &clone).commands,
    };
    let new: Vec<_> = commands.difference(&known).cloned().collect();
    let trusted = project.environment().trust == Trust::Everything || (new.is_empty() && !known.is_empty());
    Ok(TrustState { trusted, clone, commands: commands.into_iter().collect(), new })
}

/// Records that a person agreed to the commands of a [`TrustState`].
///
/// Commands that were trusted before stay trusted, so that a checkout of an older commit needs no new agreement.
///
/// # Errors
/// `Refused` if there is no folder for the record; `Failed` if it cannot be written.
pub fn agree(project: &Project, state: &TrustState) -> Result<()> {
    let folder = match &project.environment().trust {
        Trust::Everything => return Ok(()),
        Trust::Kept(folder) => folder,
        Trust::Nothing => {
            let message = "there is no folder in which trust could be kept";
            return Err(Error::new(Category::Refused, "E_UNTRUSTED", message)
                .hint("set HELMDECK_DATA_DIR, or HOME, to a folder of yours"));
        }
    };
    let mut record = read(folder, &state.clone);
    record.clone.clone_from(&state.clone);
    record.commands.extend(state.commands.iter().cloned());
    write(folder, &record)
}

/// Revokes the trust in all commands of this clone. Returns whether there was any.
///
/// # Errors
/// `Failed` if it cannot be removed.
pub fn revoke(project: &Project) -> Result<bool> {
    let Trust::Kept(folder) = &project.environment().trust else { return Ok(false) };
    let path = path_of(folder, &trust_clone(project));
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("cannot remove", &path, &error)),
    }
}

/// Refuses to run commands that are not trusted.
///
/// # Errors
/// `Refused` (`E_UNTRUSTED`) with the next step; the errors of [`state`].
pub fn check(project: &Project) -> Result<()> {
    if project.environment().trust == Trust::Everything || state(project)?.trusted {
        return Ok(());
    }
    let message = "nobody has agreed yet to run the commands that this clone's .forge names";
    Err(Error::new(Category::Refused, "E_UNTRUSTED", message)
        .hint("`helmdeck forge trust` shows them and asks; nothing of them was run")
        .next("helmdeck forge trust"))
}

/// Makes a change of this user that may add a command, such as the check of an invariant.
///
/// If the project was trusted before, it is trusted afterwards.
pub(crate) fn keep<T>(project: &Project, change: impl FnOnce() -> Result<T>) -> Result<T> {
    let trusted =
        matches!(project.environment().trust, Trust::Kept(_)) && state(project).is_ok_and(|state| state.trusted);
    let done = change()?;
    if trusted {
        agree(project, &state(project)?)?;
    }
    Ok(done)
}

fn trust_commands(project: &Project) -> Result<BTreeSet<TrustedCommand>> {
    let verify = &project.config().verify;
    let command =
        |purpose: &str, command: &str| TrustedCommand { purpose: purpose.to_owned(), command: command.to_owned() };
    let mut all = BTreeSet::from([command("verify.runner", &verify.runner)]);
    all.extend(verify.runners.iter().map(|(name, runner)| command(&format!("verify.runners.{name}"), &runner.command)));
    all.extend(verify.commands.iter().map(|line| command("verify.commands", line)));
    all.extend(tracker(project).map(|what| command("linear", &what)));
    let knowledge = Knowledge::new(project).read()?;
    all.extend(knowledge.current_invariants().filter_map(|one| one.check().map(|check| command("invariant", check))));
    if let Some(script) = project.files().read(INIT)? {
        let digest = helmdeck_core::hex(&Sha256::digest(&script));
        all.insert(command(INIT, &format!("sha256:{digest}")));
    }
    Ok(all)
}

/// Returns where issues and the key of the tracker would be sent.
fn tracker(project: &Project) -> Option<String> {
    let config = project.config();
    if config.linear.mode != LinearMode::Live {
        return None;
    }
    let or = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
    let (endpoint, what, credential) = match config.tracker.kind {
        TrackerKind::Linear => (
            or(&config.linear.endpoint, "https://api.linear.app/graphql"),
            or(&config.linear.team, "?"),
            or(&config.linear.credential, "linear-key"),
        ),
        TrackerKind::Github => (
            or(&config.github.endpoint, "https://api.github.com"),
            or(&config.github.repository, "?"),
            or(&config.github.credential, "github-token"),
        ),
    };
    Some(format!("send issues to {endpoint}, {what}, with the credential {credential}"))
}

fn trust_clone(project: &Project) -> String {
    let folder = project.git().map_or_else(|_| project.root(), |git| git.common_dir());
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string()
}

fn path_of(folder: &Path, clone: &str) -> PathBuf {
    let name = helmdeck_core::hex(&Sha256::digest(clone.as_bytes())[..16]);
    folder.join(format!("{name}.json"))
}

/// Reads the trust record of a clone.
///
/// It is empty if it cannot be read or belongs to another clone: then a person is asked again.
fn read(folder: &Path, clone: &str) -> Record {
    let look = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(path_of(folder, clone))?.take(MAX_RECORD).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let record = look().ok().and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
    record.filter(|record| record.clone == clone).unwrap_or_default()
}

fn write(folder: &Path, record: &Record) -> Result<()> {
    // Calls of one server write at once.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let path = path_of(folder, &record.clone);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let put = || -> std::io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let beside =
            folder.join(format!(".{}.{number}.{}", std::process::id(), path.file_name().unwrap_or_default().display()));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    put().map_err(|error| Error::io("cannot write", &path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::ProjectEnvironment;
    use crate::git::fixture::Repository;

    fn open(repository: &Repository, folder: &Path) -> Project {
        let environment = ProjectEnvironment { trust: Trust::Kept(folder.to_owned()), ..ProjectEnvironment::default() };
        Project::open(repository.path(), environment).unwrap().unwrap()
    }

    #[test]
    fn trust_is_for_one_clone_and_the_commands_that_were_shown() {
        let (repository, kept) = (Repository::new(), tempfile::tempdir().unwrap());
        drop(repository.project());
        let project = open(&repository, kept.path());
        let refused = crate::runner::check(&project, "touch ran", std::time::Duration::from_secs(9)).unwrap_err();
        assert_eq!((refused.code, refused.category), ("E_UNTRUSTED", Category::Refused));
        assert!(!repository.path().join("ran").exists());

        let state = super::state(&project).unwrap();
        assert!(!state.trusted && state.new == state.commands, "{state:?}");
        agree(&project, &state).unwrap();
        check(&project).unwrap();

        // A new command needs a new agreement; the earlier ones stay trusted.
        let before = fs::read(repository.path().join(".forge/config.toml")).ok();
        repository.write(".forge/config.toml", "[verify]\nrunner = \"sh:id\"\n");
        let state = super::state(&open(&repository, kept.path())).unwrap();
        assert_eq!((state.trusted, state.new.len(), state.new[0].command.as_str()), (false, 1, "sh:id"));
        repository.write(".forge/config.toml", before.unwrap_or_default());
        assert!(super::state(&open(&repository, kept.path())).unwrap().trusted);
        repository.write(".forge/init.sh", "#!/bin/sh\nid\n");
        assert!(check(&open(&repository, kept.path())).is_err(), "a script is trusted by its content");

        // A copy of the repository at another place is another clone.
        let copy = repository.snapshot().repository();
        fs::remove_file(copy.path().join(".forge/init.sh")).unwrap();
        assert!(check(&open(&copy, kept.path())).is_err());

        fs::remove_file(repository.path().join(".forge/init.sh")).unwrap();
        assert!(revoke(&open(&repository, kept.path())).unwrap());
        assert!(check(&open(&repository, kept.path())).is_err());
        assert!(!revoke(&open(&repository, kept.path())).unwrap());
    }

    #[test]
    fn concurrent_writes_of_a_record_all_succeed() {
        let kept = tempfile::tempdir().unwrap();
        let record = Record { clone: "/clone".into(), ..Record::default() };
        std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..10).try_for_each(|_| write(kept.path(), &record)))).collect();
            for writer in writers {
                writer.join().unwrap().unwrap();
            }
        });
        assert_eq!(fs::read_dir(kept.path()).unwrap().count(), 1, "nothing is left beside the record");
    }

    #[test]
    fn damaged_records_ask_again() {
        let (repository, kept) = (Repository::new(), tempfile::tempdir().unwrap());
        drop(repository.project());
        let project = open(&repository, kept.path());
        agree(&project, &state(&project).unwrap()).unwrap();
        let path = fs::read_dir(kept.path()).unwrap().next().unwrap().unwrap().path();
        fs::write(&path, "{\"clone\": \"/elsewhere\"}").unwrap();
        assert_eq!(check(&project).unwrap_err().code, "E_UNTRUSTED");
        fs::write(&path, "not json").unwrap();
        assert_eq!(check(&project).unwrap_err().code, "E_UNTRUSTED");
    }
}
