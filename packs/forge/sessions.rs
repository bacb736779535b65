//! `forge.session_*`, `forge.commit`: start, log, commit and end work.

use helmdeck_forge::git::{Commits, Committed, NewCommit};
use helmdeck_forge::sessions::{End, Finished, Log, Logged, Sessions, Start, Started};
use helmdeck_forge::{Project, Result};
use serde::Deserialize;

use super::knowledge::Learn;
use super::place::Done;

pub(super) fn start(project: &Project, input: Start) -> Done<Started> {
    Sessions::new(project).start(&input)
}

pub(super) fn log(project: &Project, input: Log) -> Done<Logged> {
    Sessions::new(project).log(&input)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ending {
    #[serde(default)]
    learned: Vec<Learn>,
    next: Option<String>,
    leave_dirty: Option<String>,
    key: Option<String>,
}

pub(super) fn end(project: &Project, input: Ending) -> Done<Finished> {
    let learned = input.learned.into_iter().map(Learn::learning).collect::<Result<_>>()?;
    Sessions::new(project).end(&End { learned, next: input.next, leave_dirty: input.leave_dirty, key: input.key })
}

pub(super) fn commit(project: &Project, input: NewCommit) -> Done<Committed> {
    let session = Sessions::new(project).required()?;
    let origin = Commits::new(project).origin(&session.id, &session.uuid)?;
    Commits::new(project).create(&input, &origin)
}
