//! The events of a session: it began, ended or was abandoned. Each is logged once.

use super::end::Finished;
use super::record::Session;
use crate::events::{self, Events, Replay, Subject, data};
use crate::features::Features;
use crate::health;
use crate::project::Project;

/// Emits the event that a session began.
pub(super) fn start(project: &Project, session: &Session, issues: Vec<String>) {
    if is_told(project, Subject::SessionStart, &session.id) {
        return;
    }
    let counts = Features::new(project)
        .list()
        .map(|listed| listed.counts)
        .unwrap_or_default();
    let payload = data::Started {
        branch: session.branch.clone(),
        active_issues: issues,
        features: data::Tally {
            passing: count(counts.passing),
            total: count(counts.counted),
        },
        health: Some(health(project)),
    };
    events::emit(project, Subject::SessionStart, payload);
}

/// Records the health in the history, and returns the worst colour. Only measuring records nothing.
fn health(project: &Project) -> String {
    let health = health::measure(project);
    if let Err(error) = health::record(project, &health) {
        tracing::warn!(%error, "the health was not kept for the past");
    }
    health.overall.as_str().to_owned()
}

/// Emits the event that a session ended.
pub(super) fn end(project: &Project, finished: &Finished, dirty: bool) {
    if is_told(project, Subject::SessionEnd, &finished.session) {
        return;
    }
    let payload = data::Ended {
        reason: "done".to_owned(),
        commits: count(finished.commits),
        learned: count(finished.learned.len()),
        duration_s: finished.duration_s,
        dirty,
    };
    events::emit(project, Subject::SessionEnd, payload);
    health(project);
}

/// Emits the event that a session was abandoned.
pub(super) fn abandoned(project: &Project, session: &Session) {
    if is_told(project, Subject::SessionAbandoned, &session.id) {
        return;
    }
    let seconds = session
        .seen_at
        .0
        .as_second()
        .saturating_sub(session.started_at.0.as_second());
    let ended = data::Ended {
        reason: "abandoned".to_owned(),
        duration_s: u64::try_from(seconds).unwrap_or_default(),
        ..data::Ended::default()
    };
    events::emit_of(project, &session.id, Subject::SessionAbandoned, ended);
}

/// Says whether the event was emitted already, so that a repeated step does not emit it twice.
fn is_told(project: &Project, subject: Subject, session: &str) -> bool {
    let about = Replay {
        about: vec![subject],
        session: Some(session.to_owned()),
        ..Replay::default()
    };
    Events::new(project)
        .replay(&about)
        .is_ok_and(|payload| !payload.events.is_empty())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
