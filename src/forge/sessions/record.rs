//! The record of an active session, and when it counts as abandoned.
//!
//! No process of a session runs between two commands, so a lock cannot show that it is active. A
//! lease does: every command of the session renews it, and a session whose lease has run out is
//! abandoned.

use std::time::Duration;

use helmdeck_forge_documents::knowledge::Learning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Document;
use crate::focus::Focus;
use crate::json::Members;
use crate::layout::{LIVING, SESSIONS, session_folder};
use crate::time::Time;

/// Default lease of a session without a command: an hour, after which `progress.txt` is stale as
/// well.
pub const LEASE: Duration = Duration::from_secs(60 * 60);
/// Maximum difference between clocks.
const SKEW: Duration = Duration::from_secs(5 * 60);

/// Active sessions of this work tree: the file `.forge/.local/sessions.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActiveSessions {
    /// The schema version of the file.
    pub schema_version: String,
    /// The sessions, in the order in which they began. At most one of them is primary.
    pub sessions: Vec<Session>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Document for ActiveSessions {
    const PATH: &'static str = LIVING;

    fn skeleton() -> Self {
        Self::empty()
    }

    fn check(&self) -> Result<(), String> {
        if let Some(session) = self
            .sessions
            .iter()
            .find(|session| session_folder(&session.id).is_err())
        {
            return Err(format!("{:?} is no id of a session", session.id));
        }
        let primary = self
            .sessions
            .iter()
            .filter(|session| session.primary && session.state.is_alive())
            .count();
        if primary > 1 {
            Err("more than one session that lives is primary".to_owned())
        } else {
            Ok(())
        }
    }
}

/// A file with one record: `session.json` in the folder of a session, as earlier versions wrote it.
impl Document for Session {
    const PATH: &'static str = SESSIONS;

    fn skeleton() -> Self {
        let never = Time(jiff::Timestamp::UNIX_EPOCH);
        Self {
            schema_version: None,
            id: String::new(),
            uuid: String::new(),
            agent: String::new(),
            primary: false,
            state: State::Ended,
            started_at: never,
            seen_at: never,
            lease_until: never,
            branch: None,
            head: None,
            resumes: None,
            steps: Vec::new(),
            ending: None,
            ended_at: None,
            abandoned: None,
            focus: None,
            other: Members::default(),
        }
    }
}

impl ActiveSessions {
    /// Returns the state of a work tree without a session.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            schema_version: "1.0".to_owned(),
            sessions: Vec::new(),
            other: Members::default(),
        }
    }

    /// Returns the primary session: the one that the RFC's paths show.
    #[must_use]
    pub fn primary(&self) -> Option<&Session> {
        self.sessions
            .iter()
            .find(|session| session.primary && session.state.is_alive())
    }

    /// Returns a session.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// Returns a session, to change it.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.id == id)
    }
}

/// One session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// The schema version of the file; only if the record has a file to itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<String>,
    /// Its name: `2025-12-24-session-001`. Two clones may use the same name.
    pub id: String,
    /// Its unique id: a `UUIDv7`.
    pub uuid: String,
    /// The agent that works in it.
    pub agent: String,
    /// Whether the RFC's paths show it. Other sessions have their own folders.
    pub primary: bool,
    /// The state.
    pub state: State,
    /// When it started.
    pub started_at: Time,
    /// When one of its commands ran last.
    pub seen_at: Time,
    /// When it counts as abandoned unless a command runs before.
    pub lease_until: Time,
    /// The branch at its start; `null` if HEAD was detached or there is no git.
    pub branch: Option<String>,
    /// The commit at its start.
    pub head: Option<String>,
    /// The abandoned session that it resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<String>,
    /// The completed steps, in order.
    #[serde(default)]
    pub steps: Vec<CompletedStep>,
    /// How the session ends. It is stored first, so that an interrupted end resumes the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Why it counts as abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<String>,
    /// Its last focus; only in the record of a session that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<Focus>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Starting: some steps of the start are not done.
    Starting,
    /// Active.
    Live,
    /// Ending: some steps of the end are not done.
    Ending,
    /// Ended.
    Ended,
    /// Abandoned: it stopped without an end.
    Abandoned,
}

impl State {
    /// Says whether the session is neither ended nor abandoned.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Starting | Self::Live | Self::Ending)
    }
}

/// A completed step of a start or an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompletedStep {
    /// The name of the step.
    pub name: String,
    /// When it was completed.
    pub at: Time,
    /// The result, if the end of the session or a report needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// How a session is to end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Ending {
    /// When the end began.
    pub since: Option<Time>,
    /// The next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Why uncommitted code is left behind; none if no code is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_dirty: Option<String>,
    /// The issue key for the commit of the memory; none = `[session]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What was learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<Learning>,
}

impl Session {
    /// Returns the record of a step, if it is done.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<&CompletedStep> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// Records that a step is done.
    pub fn done(&mut self, name: &str, at: Time, note: Option<String>) {
        if self.step(name).is_none() {
            self.steps.push(CompletedStep {
                name: name.to_owned(),
                at,
                note,
            });
        }
    }

    /// Renews the lease.
    pub fn renew(&mut self, now: Time, lease: Duration) {
        self.seen_at = now;
        self.lease_until = later(now, lease);
    }

    /// Returns why the session counts as abandoned; `None` while it is active.
    #[must_use]
    pub fn given_up(&self, now: Time) -> Option<String> {
        if now > self.lease_until {
            return Some(format!(
                "no command of it ran since {}",
                self.seen_at.seconds()
            ));
        }
        // A clock that was ahead must not keep the session active until that time is reached.
        (self.seen_at > later(now, SKEW))
            .then(|| format!("it was last seen at {}, which is yet to come", self.seen_at))
    }
}

/// Returns a time plus a duration, capped at the latest possible time.
pub(super) fn later(time: Time, by: Duration) -> Time {
    Time(time.0.saturating_add(by).unwrap_or(jiff::Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    fn session() -> Session {
        let start = time("2025-12-24T11:00:00Z");
        Session {
            id: "2025-12-24-session-001".to_owned(),
            agent: "Forge".to_owned(),
            primary: true,
            state: State::Live,
            started_at: start,
            seen_at: start,
            lease_until: later(start, LEASE),
            ..Session::skeleton()
        }
    }

    #[test]
    fn a_session_lives_until_its_lease_runs_out() {
        let mut session = session();
        assert_eq!(
            session.given_up(time("2025-12-24T12:00:00Z")),
            None,
            "equal still lives"
        );
        let late = time("2025-12-24T12:00:01Z");
        assert!(
            session
                .given_up(late)
                .unwrap()
                .contains("2025-12-24T11:00:00Z")
        );
        session.renew(late, LEASE);
        assert_eq!(session.given_up(time("2025-12-24T13:00:01Z")), None);
    }

    #[test]
    fn a_clock_that_was_ahead_does_not_keep_a_session_alive() {
        let session = session();
        assert_eq!(session.given_up(time("2025-12-24T10:55:00Z")), None);
        assert!(session.given_up(time("2025-12-24T10:54:59Z")).is_some());
    }

    #[test]
    fn a_step_is_noted_once() {
        let mut session = session();
        session.done("progress", session.started_at, None);
        session.done(
            "progress",
            later(session.started_at, LEASE),
            Some("again".to_owned()),
        );
        assert_eq!(session.steps.len(), 1);
        assert_eq!(session.step("progress").unwrap().at, session.started_at);
        assert_eq!(session.step("focus"), None);
    }

    #[test]
    fn what_is_not_known_of_a_session_is_kept() {
        let mut value = serde_json::to_value(ActiveSessions {
            sessions: vec![session()],
            ..ActiveSessions::empty()
        })
        .unwrap();
        value["sessions"][0]["mine"] = 1.into();
        let living: ActiveSessions = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&living).unwrap(), value);
        assert_eq!(
            living.primary().map(|session| session.id.as_str()),
            Some("2025-12-24-session-001")
        );
    }
}
