//! Mending a damaged file. What could stand in its place is offered in a fixed order, with what would change; nothing is written unless
//! one is chosen, and the damaged bytes are kept.

mod diff;

use serde::Serialize;

use crate::config::Config;
use crate::error::{Category, Error, Result};
use crate::files::{Unreadable, check_path, kind_of, last_good, text};
use crate::json::Json;
use crate::layout::{CHECKPOINTS, CONFIG, FORGE};
use crate::project::Project;

/// How many versions git has of a file are looked at.
const MAX_VERSIONS: &str = "50";

/// Where a good version comes from, in the order in which they are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// What the tag of a checkpoint holds: its file is but a mirror of it.
    Tag,
    /// What was written last.
    LastGood,
    /// The newest version in git that is good.
    Git,
    /// The lines that are good, for files of lines.
    Salvage,
    /// What a new project begins with.
    Skeleton,
}

/// A version that could stand in place of the damaged one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Where it comes from.
    pub source: Source,
    /// More about it: the commit, how many lines are lost.
    pub detail: String,
    /// What would change: lines that go begin with `-`, lines that come with `+`.
    pub diff: String,
    #[serde(skip)]
    bytes: Vec<u8>,
}

/// What is wrong with a file, and what can be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The file, below the root.
    pub path: String,
    /// What is wrong; absent if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// What could stand in its place, the best first.
    pub candidates: Vec<Candidate>,
    /// What was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<Source>,
    /// Where the damaged bytes are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
}

/// How a file is to be mended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mend {
    /// Write it. Without, it is only shown.
    pub yes: bool,
    /// Take this version, and not the first that is offered.
    pub from: Option<Source>,
}

/// What kind of file it is, as far as mending goes.
enum Form {
    Document(&'static crate::files::Kind),
    Lines,
    Config,
}

impl Project {
    /// Returns the path of every file that is damaged.
    ///
    /// # Errors
    /// `Failed` if something cannot be read.
    pub fn damaged(&self) -> Result<Vec<String>> {
        let files = self.files().reading();
        let mut damaged = Vec::new();
        let logs = [crate::layout::JOURNAL, crate::layout::EVENTS_OUTBOX, CONFIG].map(str::to_owned);
        let index = files.parts(crate::layout::ARTIFACT_INDEX)?;
        for path in self.documents()?.into_iter().chain(index).chain(logs) {
            let Some(form) = form(&path) else { continue };
            let bad = match files.read(&path) {
                Ok(bytes) => bytes.is_some_and(|bytes| check(&form, &bytes).is_err()),
                Err(error) => error.category == Category::Corrupt,
            };
            if bad {
                damaged.push(path);
            }
        }
        Ok(damaged)
    }

    /// Says what is wrong with a file and what could stand in its place; with `yes` it writes that.
    ///
    /// # Errors
    /// `Usage` for a file that is none of ours; `NotFound` if it is absent; `Refused` if a newer program wrote it, or if the version that is
    /// asked for is not offered; what writing says.
    pub fn repair(&self, path: &str, mend: Mend) -> Result<Repair> {
        check_path(path)?;
        let form = form(path).ok_or_else(|| {
            Error::usage(format!("{path} is no file that can be repaired"))
                .hint(format!("documents, lists of lines and settings below {FORGE} can"))
        })?;
        if mend.yes {
            self.check_not_paused()?;
        }
        let (bytes, huge) = match self.files().read(path) {
            Ok(Some(bytes)) => (bytes, None),
            Ok(None) => return Err(Error::not_found(format!("there is no {path}")).next("helmdeck forge doctor --fix")),
            // Too large to be looked at: only other versions can be offered.
            Err(error) if error.category == Category::Corrupt => (Vec::new(), Some(error.message)),
            Err(error) => return Err(error),
        };
        let damage = match (huge.clone(), check(&form, &bytes)) {
            (Some(huge), _) => huge,
            (None, Ok(())) => {
                return Ok(Repair {
                    path: path.into(),
                    damage: None,
                    candidates: Vec::new(),
                    applied: None,
                    copy: None,
                });
            }
            (None, Err(Unreadable::Damaged(at))) => format!("line {}, column {}: {}", at.line, at.column, at.what),
            (None, Err(newer)) => return Err(self.files().unreadable(path, &bytes, newer)),
        };
        let candidates = self.candidates(path, &form, &bytes)?;
        let mut repair = Repair { path: path.into(), damage: Some(damage), candidates, applied: None, copy: None };
        if mend.yes {
            let chosen =
                repair.candidates.iter().find(|candidate| mend.from.is_none_or(|from| from == candidate.source));
            let chosen = chosen.ok_or_else(|| Error::refused(format!("no good version of {path} was found there")))?;
            let source = chosen.source;
            self.files().check_secrets(path, &chosen.bytes)?;
            // To look for versions may take long, so it was done before the lock.
            let _guard = self.files().lock()?;
            let same = match self.files().read(path) {
                Ok(now) => huge.is_none() && now.as_ref() == Some(&bytes),
                Err(error) => huge.is_some() && error.category == Category::Corrupt,
            };
            if !same {
                return Err(Error::new(Category::Stale, "E_STALE", format!("{path} was changed meanwhile"))
                    .hint("look at it again")
                    .next(format!("helmdeck forge repair {path}")));
            }
            repair.copy = self.keep(path, &bytes, huge.is_some())?;
            self.files().put(path, &chosen.bytes, None)?;
            repair.applied = Some(source);
        }
        Ok(repair)
    }

    /// Keeps the damaged bytes. If there are ten copies already, or it is too large to be copied, the file gets a second name: nothing is lost.
    fn keep(&self, path: &str, bytes: &[u8], huge: bool) -> Result<Option<String>> {
        if !huge && let Some(copy) = self.files().quarantine(path, bytes)? {
            return Ok(Some(copy));
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        let copy = format!("{}/{name}.{}", crate::layout::QUARANTINE, self.world().uuid());
        // The file stays where it is until it is replaced: were it gone for a moment and the process killed, it would count as absent.
        if self.files().link(path, &copy).is_err() {
            self.files().rename(path, &copy)?;
        }
        Ok(Some(copy))
    }

    fn candidates(&self, path: &str, form: &Form, bytes: &[u8]) -> Result<Vec<Candidate>> {
        let mut all = Vec::new();
        let mut offer = |source, detail: String, new: Vec<u8>| {
            if check(form, &new).is_ok() {
                all.push(Candidate { source, detail, diff: diff::lines(bytes, &new), bytes: new });
            }
        };
        if let Some((tag, new)) = self.of_tag(path) {
            offer(Source::Tag, format!("as the tag {tag} has it"), new);
        }
        let good = last_good(path);
        if let Ok(Some(new)) = self.files().read(&good) {
            offer(Source::LastGood, format!("as it was written last: {good}"), new);
        }
        if let Some((commit, new)) = self.newest_in_git(path, form) {
            offer(Source::Git, format!("as it is in commit {commit}"), new);
        }
        match form {
            Form::Lines => {
                let (kept, lost) = salvage(bytes);
                offer(Source::Salvage, format!("without {lost} damaged lines"), kept);
            }
            Form::Document(kind) => {
                offer(
                    Source::Skeleton,
                    "as a new project begins: all it held is lost but for the copy".into(),
                    kind.skeleton(),
                );
            }
            Form::Config => {
                offer(Source::Skeleton, "every setting has its default".into(), crate::init::config().to_vec())
            }
        }
        Ok(all)
    }

    /// Returns what the tag of a checkpoint holds, for the file that mirrors it.
    fn of_tag(&self, path: &str) -> Option<(String, Vec<u8>)> {
        let name = path.strip_prefix(CHECKPOINTS)?.strip_prefix('/')?.strip_suffix(".json")?;
        self.checkpoints().mirror(name).ok().flatten()
    }

    /// Looks for the newest version in git that is good. Without git there is none.
    fn newest_in_git(&self, path: &str, form: &Form) -> Option<(String, Vec<u8>)> {
        let git = self.git().ok()?;
        // The memory may lie below the root of the repository.
        let below = self.root().strip_prefix(git.root()).ok()?.join(path);
        let below = below.to_str()?;
        let args = ["log", "--format=%H", "-n", MAX_VERSIONS, "--end-of-options", "HEAD", "--", below];
        let log = git.succeed(&args, &crate::git::Run::default()).ok()?;
        log.text().lines().find_map(|commit| {
            let oid = crate::git::Oid::parse(commit)?;
            let bytes = git.file_at(&oid, below).ok()??;
            check(form, &bytes).ok()?;
            Some((commit.get(..12).unwrap_or(commit).to_owned(), bytes))
        })
    }
}

fn form(path: &str) -> Option<Form> {
    if path == CONFIG {
        return Some(Form::Config);
    }
    if let Some(kind) = kind_of(path) {
        return Some(Form::Document(kind));
    }
    (path.starts_with(".forge/") && path.ends_with(".jsonl")).then_some(Form::Lines)
}

fn check(form: &Form, bytes: &[u8]) -> Result<(), Unreadable> {
    match form {
        Form::Document(kind) => kind.check(bytes),
        Form::Lines if bytes.is_empty() => Ok(()),
        Form::Lines => {
            let text = text(bytes).map_err(Unreadable::Damaged)?;
            for (at, line) in text.lines().enumerate() {
                if serde_json::from_str::<Json>(line).is_err() {
                    let what = "expected one JSON value on each line".to_owned();
                    return Err(Unreadable::Damaged(crate::files::Damage { line: at + 1, column: 1, what }));
                }
            }
            Ok(())
        }
        Form::Config if bytes.is_empty() => Ok(()),
        Form::Config => {
            let text = text(bytes).map_err(Unreadable::Damaged)?;
            Config::parse(text).map(drop).map_err(Unreadable::Damaged)
        }
    }
}

/// Returns the good lines, and how many are damaged.
fn salvage(bytes: &[u8]) -> (Vec<u8>, usize) {
    let mut kept = Vec::new();
    let mut lost = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        if std::str::from_utf8(line).is_ok_and(|line| serde_json::from_str::<Json>(line).is_ok()) {
            kept.extend_from_slice(line);
            kept.push(b'\n');
        } else {
            lost += 1;
        }
    }
    (kept, lost)
}

#[cfg(test)]
mod tests;
