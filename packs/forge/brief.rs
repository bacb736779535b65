//! `forge.prime`, `forge.health`, `forge.events_tail`: the state of the project.

use helmdeck_forge::events::{Events, Replay, Replayed};
use helmdeck_forge::health::Health;
use helmdeck_forge::prime::Primed;
use helmdeck_forge::{Project, Subject, Time};
use serde::Deserialize;

use super::place::{Done, Nothing};

/// Default number of events.
const EVENTS: usize = 20;

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tail {
    last: Option<usize>,
    #[serde(default)]
    after: u64,
    since: Option<Time>,
    #[serde(default)]
    about: Vec<Subject>,
    of_session: Option<String>,
}

pub(super) fn events_tail(project: &Project, input: Tail) -> Done<Replayed> {
    Events::new(project).replay(&Replay {
        after: input.after,
        since: input.since,
        about: input.about,
        session: input.of_session,
        last: Some(input.last.unwrap_or(EVENTS)),
    })
}
