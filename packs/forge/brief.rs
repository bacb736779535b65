//! `forge.prime`, `forge.health`: the state of the project.

use helmdeck_forge::Project;
use helmdeck_forge::health::Health;
use helmdeck_forge::prime::Primed;
use serde::Deserialize;

use super::place::{Done, Nothing};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prime {
    budget: Option<usize>,
}

pub(super) fn prime(project: &Project, input: Prime) -> Done<Primed> {
    helmdeck_forge::prime::prime(project, input.budget)
}

pub(super) fn health(project: &Project, _: Nothing) -> Done<Health> {
    Ok(helmdeck_forge::health::measure(project))
}
