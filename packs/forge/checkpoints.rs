//! `forge.checkpoint_*`: create and list checkpoints.

use helmdeck_forge::Project;
use helmdeck_forge::checkpoints::{Checkpoint, Checkpoints, Create, Made};
use serde::{Deserialize, Serialize};

use super::place::Done;

/// Default number of checkpoints in a list.
const LISTED: usize = 20;

/// Input of `checkpoint_create`.
///
/// The project configures what must succeed, and people decide where a tag goes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    key: Option<String>,
    message: Option<String>,
    #[serde(default)]
    closes: Vec<String>,
}

pub(super) fn create(project: &Project, input: New) -> Done<Made> {
    let asked = Create {
        key: input.key,
        message: input.message,
        closes: input.closes,
        ..Create::default()
    };
    Checkpoints::new(project).create(&asked)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    name: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Listed {
    total: usize,
    checkpoints: Vec<Checkpoint>,
}

pub(super) fn list(project: &Project, input: List) -> Done<Listed> {
    let mut checkpoints = match input.name {
        Some(name) => vec![Checkpoints::new(project).show(&name)?],
        None => Checkpoints::new(project).list()?,
    };
    let total = checkpoints.len();
    checkpoints.truncate(input.limit.unwrap_or(LISTED));
    Ok(Listed { total, checkpoints })
}
