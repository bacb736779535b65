//! Trust: what a clone may run and reach, as a person agreed to it on this machine.
//!
//! The `.forge` folder of another person's repository names its tests, and a test is any program.
//! So nothing of that runs before a person has seen it and agreed. The agreement is a record
//! outside of the repository, because a repository could bring a forged one. It holds each command
//! as the words that are run, with the digests of the clone's files that they run, and each setting
//! that is not known to be harmless. It is bound to a random id in the clone's git folder and to
//! the first commit, so a folder that takes the place of the clone is another clone.
//!
//! The agreement is not about what a command runs in turn: to trust `cargo test` is to run the
//! tests that the repository has, today's and tomorrow's.

mod clone;
mod record;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::clone::Clone;
use crate::environment::Trust;
use crate::error::{Category, Error, Result};
use crate::project::Project;

/// The purpose of a setting among the commands.
const SETTING: &str = "setting";

/// A command in the files of a project, or a setting of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct TrustedCommand {
    /// What it is for.
    ///
    /// One of `verify.runner`, `verify.runners.<name>`, `built-in runner <name>`,
    /// `verify.commands`, `invariant`, `.forge/init.sh`, `setting`.
    #[serde(rename = "for")]
    pub purpose: String,
    /// The words of the command, quoted as a shell reads them, or the setting.
    pub command: String,
    /// The files of the clone that the command names, each with its SHA-256.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// The commands of a project, and whether they are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TrustState {
    /// Whether all of them are trusted.
    pub trusted: bool,
    /// Where the clone is: the repository's common folder, or the root of a project without git.
    pub clone: String,
    /// Every command and every setting that is not known to be harmless.
    pub commands: Vec<TrustedCommand>,
    /// Those that are not trusted yet.
    pub new: Vec<TrustedCommand>,
    /// What changed since a person agreed; empty if nobody did.
    pub changed: Vec<String>,
}

/// Returns what this project wants to run and reach, and which of it is trusted.
///
/// # Errors
/// `Corrupt` if the knowledge or the features, which hold commands, are damaged; `Failed` if
/// something cannot be read.
pub fn state(project: &Project) -> Result<TrustState> {
    let commands = wanted::all(project, project.config())?;
    let clone = Clone::of(project);
    let (record, stranger) = match &project.environment().trust {
        Trust::Kept(folder) => record::find(folder, &clone, project),
        Trust::Everything | Trust::Nothing => (None, None),
    };
    let everything = project.environment().trust == Trust::Everything;
    let knows = |one: &TrustedCommand| {
        everything || record.as_ref().is_some_and(|record| record.knows(one))
    };
    let new: Vec<_> = commands.iter().filter(|one| !knows(one)).cloned().collect();
    let mut changed: Vec<String> = stranger.into_iter().collect();
    if let Some(record) = &record {
        changed.extend(new.iter().flat_map(|one| record.differences(one)));
    }
    let trusted = everything || (new.is_empty() && record.is_some());
    Ok(TrustState {
        trusted,
        clone: clone.shown(),
        commands: commands.into_iter().collect(),
        new,
        changed,
    })
}

/// Records that a person agreed to what a [`TrustState`] shows.
///
/// What was trusted before stays trusted, so that a checkout of an older commit needs no new
/// agreement.
///
/// # Errors
/// `Refused` if there is no folder for the record; `Failed` if it cannot be written.
pub fn agree(project: &Project, state: &TrustState) -> Result<()> {
    match &project.environment().trust {
        Trust::Everything => Ok(()),
        Trust::Kept(folder) => record::add(folder, &Clone::of(project), project, &state.commands),
        Trust::Nothing => {
            let message = "there is no folder in which trust could be kept";
            Err(Error::new(Category::Refused, "E_UNTRUSTED", message)
                .hint("set HELMDECK_DATA_DIR, or HOME, to a folder of yours"))
        }
    }
}

/// Revokes the trust in this clone. Returns whether there was any.
///
/// # Errors
/// `Failed` if it cannot be removed.
pub fn revoke(project: &Project) -> Result<bool> {
    let Trust::Kept(folder) = &project.environment().trust else {
        return Ok(false);
    };
    record::remove(folder, &Clone::of(project))
}

/// Refuses a clone that is not trusted.
///
/// # Errors
/// `Refused` (`E_UNTRUSTED`) with the next step; the errors of [`state`].
pub fn check(project: &Project) -> Result<()> {
    if project.environment().trust == Trust::Everything {
        return Ok(());
    }
    match state(project)? {
        TrustState { trusted: true, .. } => Ok(()),
        state => Err(refusal(&state.changed)),
    }
}

/// Refuses a command that nobody agreed to, whatever part of this program wants to run it. What
/// else is new in the clone does not matter.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_command(project: &Project, command: &str) -> Result<()> {
    let folder = match &project.environment().trust {
        Trust::Everything => return Ok(()),
        Trust::Nothing => return Err(refusal(&[])),
        Trust::Kept(folder) => folder,
    };
    let wanted = wanted::command(project.root(), "", command)?;
    match record::find(folder, &Clone::of(project), project) {
        (Some(record), _) if record.knows(&wanted) => Ok(()),
        (Some(record), _) => Err(refusal(&record.differences(&wanted))),
        (None, stranger) => Err(refusal(&stranger.into_iter().collect::<Vec<_>>())),
    }
}

fn refusal(changed: &[String]) -> Error {
    let message = "nobody has agreed yet to run the commands that this clone's .forge names";
    let message = match changed.first() {
        None => message.to_owned(),
        Some(first) => format!("{message}, as they are now: {first}"),
    };
    Error::new(Category::Refused, "E_UNTRUSTED", message)
        .hint("`helmdeck forge trust` shows them and asks; nothing of them was run")
        .next("helmdeck forge trust")
}

/// Makes a change of this user that may add a command, such as the check of an invariant.
///
/// If the project was trusted before, it is trusted afterwards.
pub(crate) fn keep<T>(project: &Project, change: impl FnOnce() -> Result<T>) -> Result<T> {
    let Trust::Kept(folder) = &project.environment().trust else {
        return change();
    };
    let trusted = state(project).is_ok_and(|state| state.trusted);
    let done = change()?;
    if trusted {
        // The change may be one of the settings.
        let commands: Vec<_> = wanted::all(project, &project.settings_now()?)?
            .into_iter()
            .collect();
        record::add(folder, &Clone::of(project), project, &commands)?;
    }
    Ok(done)
}
