//! `forge.recover_*`: assess damage and roll back without losing anything.

use helmdeck_forge::Project;
use helmdeck_forge::recovery::{Applied, Apply, Assess, Attempts, Mode, Recovery, Report};
use serde::Deserialize;

use super::place::Done;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Look {
    #[serde(default)]
    no_verify: bool,
}

pub(super) fn assess(project: &Project, input: Look) -> Done<Report> {
    Recovery::new(project).assess(Assess { verify: !input.no_verify })
}

/// The result of a check that the caller ran.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tried {
    passed: bool,
    what: String,
}

pub(super) fn tried(project: &Project, input: Tried) -> Done<Attempts> {
    Recovery::new(project).tried(input.passed, &input.what)
}

/// Input of a rollback.
///
/// A caller chooses neither the folder of a new work tree nor the checkpoint. A rollback to a named checkpoint happens
/// whatever the assessment says, so a person must decide on it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Back {
    mode: Option<Mode>,
    why: Option<String>,
}

pub(super) fn apply(project: &Project, input: Back) -> Done<Applied> {
    let asked = Apply { mode: input.mode, why: input.why, ..Apply::default() };
    Recovery::new(project).apply(&asked)
}
