//! `forge.recover_*`: assess damage and roll back without losing anything.

use helmdeck_forge::Project;
use helmdeck_forge::recovery::{Applied, Apply, Assess, Recovery, Report};
use serde::Deserialize;

use super::place::Done;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Look {
    #[serde(default)]
    no_verify: bool,
}

pub(super) fn assess(project: &Project, input: Look) -> Done<Report> {
    Recovery::new(project).assess(Assess {
        verify: !input.no_verify,
    })
}

/// Input of a rollback.
///
/// A caller does not choose the checkpoint. A rollback to a named one happens whatever the
/// assessment says, so a person must decide on it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Back {
    why: Option<String>,
}

pub(super) fn apply(project: &Project, input: Back) -> Done<Applied> {
    Recovery::new(project).apply(&Apply {
        why: input.why,
        ..Apply::default()
    })
}
