//! Records of trust: one file for each clone, outside of every repository.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::clone::{Clone, Identity};
use super::{SETTING, TrustedCommand};
use crate::error::{Error, Result};
use crate::project::Project;
use crate::shared;

/// The largest record that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// What a person agreed to in one clone.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// Where the clone was, for people.
    clone: String,
    /// The mark of the file with its id.
    mark: String,
    /// Its first commit; `None` if it had none yet.
    first_commit: Option<String>,
    commands: BTreeSet<TrustedCommand>,
}

impl Record {
    /// Says whether a person agreed to a command with these files, whatever it is for, or to a
    /// setting.
    pub(super) fn knows(&self, wanted: &TrustedCommand) -> bool {
        self.same(wanted).any(|one| one.files == wanted.files)
    }

    fn same(&self, wanted: &TrustedCommand) -> impl Iterator<Item = &TrustedCommand> {
        let setting = wanted.purpose == SETTING;
        self.commands
            .iter()
            .filter(move |one| (one.purpose == SETTING) == setting && one.command == wanted.command)
    }

    /// Says how a command that is not known differs from what is.
    pub(super) fn differences(&self, wanted: &TrustedCommand) -> Vec<String> {
        let TrustedCommand {
            purpose,
            command,
            files,
        } = wanted;
        if self.same(wanted).next().is_none() {
            let what = if purpose == SETTING {
                "the setting "
            } else {
                ""
            };
            return vec![format!("{what}`{command}` is new")];
        }
        let known = |file: &str, digest: &str| {
            self.same(wanted)
                .any(|one| one.files.get(file).is_some_and(|d| d == digest))
        };
        let new = files.iter().filter(|(file, digest)| !known(file, digest));
        let mut changed: Vec<_> = new
            .map(|(file, _)| format!("{file}, which `{command}` names, changed"))
            .collect();
        if changed.is_empty() {
            changed.push(format!("a file that `{command}` named is gone"));
        }
        changed
    }
}

/// Finds the record of a clone.
///
/// There is none if it cannot be read, or is about another clone: then a person is asked again. The
/// second value says why a record does not count.
pub(super) fn find(
    folder: &Path,
    clone: &Clone,
    project: &Project,
) -> (Option<Record>, Option<String>) {
    let Some(identity) = clone.identity() else {
        return (None, None);
    };
    let Some(mut record) = read(&path_of(folder, &identity)) else {
        return (None, None);
    };
    if record.mark != identity.mark {
        return (
            None,
            Some(format!("this is a copy of the clone {}", record.clone)),
        );
    }
    let first = project.first_commit();
    match (&record.first_commit, first) {
        (Some(agreed), first) if Some(agreed) != first.as_ref() => (
            None,
            Some("the history begins with another commit".to_owned()),
        ),
        (None, Some(first)) => {
            // The repository was empty when a person agreed. If this cannot be written, the next
            // one does it.
            record.first_commit = Some(first);
            let _ = write(&path_of(folder, &identity), &record);
            (Some(record), None)
        }
        _ => (Some(record), None),
    }
}

/// Adds what a person agreed to.
pub(super) fn add(
    folder: &Path,
    clone: &Clone,
    project: &Project,
    commands: &[TrustedCommand],
) -> Result<()> {
    // A copy of a trusted clone gets an id of its own, and leaves the record to the other.
    let own = |identity: &Identity| {
        read(&path_of(folder, identity)).is_none_or(|record| record.mark == identity.mark)
    };
    let identity = match clone.identity().filter(own) {
        Some(identity) => identity,
        None => clone
            .identify()
            .map_err(|error| Error::io("cannot write", Path::new(&clone.shown()), &error))?,
    };
    let mut record = find(folder, clone, project).0.unwrap_or_default();
    record.clone = clone.shown();
    record.mark.clone_from(&identity.mark);
    record.first_commit = project.first_commit();
    record.commands.extend(commands.iter().cloned());
    let path = path_of(folder, &identity);
    write(&path, &record).map_err(|error| Error::io("cannot write", &path, &error))
}

/// Removes the record of a clone. Returns whether there was one.
pub(super) fn remove(folder: &Path, clone: &Clone) -> Result<bool> {
    let Some(identity) = clone.identity() else {
        return Ok(false);
    };
    let path = path_of(folder, &identity);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("cannot remove", &path, &error)),
    }
}

fn path_of(folder: &Path, identity: &Identity) -> PathBuf {
    let name = helmdeck_core::hex(&Sha256::digest(identity.id.as_bytes())[..16]);
    folder.join(format!("{name}.json"))
}

fn read(path: &Path) -> Option<Record> {
    let mut bytes = Vec::new();
    fs::File::open(path)
        .ok()?
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub(super) fn write(path: &Path, record: &Record) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    // Its mode is 600.
    shared::write(path, &serde_json::to_vec_pretty(record)?)
}
