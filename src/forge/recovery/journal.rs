//! Recovery journal of this clone.
//!
//! It holds the current rollback, so that a killed one is resumed; the count of failed attempts; and the
//! earlier rollbacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::unknown::Unknown;
use crate::files::Document;
use crate::json::Members;
use crate::time::Time;

/// Maximum number of past rollbacks kept.
const KEPT: usize = 50;
/// Maximum number of failed code states, and of failed checks, kept.
const STATES: usize = 100;

/// Recovery journal: `.forge/.local/recovery.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Journal {
    /// The schema version.
    pub schema_version: String,
    /// The rollback in progress.
    #[serde(default)]
    pub current: Option<Rollback>,
    /// The failed attempts since the last success.
    #[serde(default)]
    pub attempts: Attempts,
    /// The last acknowledgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
    /// Past rollbacks, oldest first; the newest 50.
    #[serde(default)]
    pub past: Vec<Rollback>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            schema_version: "1.0".to_owned(),
            current: None,
            attempts: Attempts::default(),
            acknowledged: None,
            past: Vec::new(),
            other: Members::default(),
        }
    }
}

impl Journal {
    /// Moves the rollback in progress to the past ones.
    pub fn finish(&mut self) {
        if let Some(done) = self.current.take() {
            self.past.push(done);
        }
        let excess = self.past.len().saturating_sub(KEPT);
        self.past.drain(..excess);
    }
}

/// Failed attempts since the last success.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// Number of failed attempts.
    ///
    /// An attempt is a state of the code: it counts once, however many checks fail on it, however often.
    pub failed: u32,
    /// The code state that failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The code states that failed before it, oldest first; the newest 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// Checks that failed and have not succeeded since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<Failing>,
    /// The check that failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Time of the last success or, if there was none, of the first failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// A failed check: a command, the tests of a feature, or a reported failure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Failing {
    /// The check.
    pub what: String,
    /// The code state on which it failed last.
    pub state: String,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Attempts {
    /// Records a failed check on a code state.
    pub fn failed(&mut self, state: &str, what: &str, at: Time) {
        self.noted(state, what, at);
        if self.state.as_deref() == Some(state) || self.before.iter().any(|before| before == state) {
            return;
        }
        self.failed = self.failed.saturating_add(1);
        self.before.extend(self.state.replace(state.to_owned()));
        let excess = self.before.len().saturating_sub(STATES);
        self.before.drain(..excess);
    }

    /// Notes a failed check on code that is not an attempt, so it is known but not counted.
    pub fn noted(&mut self, state: &str, what: &str, at: Time) {
        self.what = Some(what.to_owned());
        self.since.get_or_insert(at);
        self.failing.retain(|failing| failing.what != what);
        let failing = Failing { what: what.to_owned(), state: state.to_owned(), other: Members::default() };
        self.failing.push(failing);
        let excess = self.failing.len().saturating_sub(STATES);
        self.failing.drain(..excess);
    }

    /// Records a successful check. Once no failed check is left, the count is reset.
    pub fn passed(&mut self, what: &str, at: Time) {
        let before = self.failing.len();
        self.failing.retain(|failing| failing.what != what);
        if before > 0 && self.failing.is_empty() {
            self.green(at);
        }
    }

    /// Says whether a check is known to fail on a code state.
    #[must_use]
    pub fn knows(&self, state: &str, what: &str) -> bool {
        self.failing.iter().any(|failing| failing.what == what && failing.state == state)
    }

    /// Records that every check succeeded.
    pub fn green(&mut self, at: Time) {
        *self = Self { since: Some(at), ..Self::default() };
    }
}

/// An acknowledged pause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Acknowledged {
    /// When.
    pub at: Time,
    /// The reason they gave.
    pub reason: String,
    /// The commit of HEAD.
    pub head: Option<String>,
    /// The unknowns.
    pub unknown: Vec<Unknown>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Acknowledged {
    /// Says whether this reason was acknowledged.
    #[must_use]
    pub fn covers(&self, reason: &Unknown) -> bool {
        self.unknown.iter().any(|known| known.code() == reason.code())
    }
}

impl Document for Journal {
    const PATH: &'static str = super::FILE;

    fn skeleton() -> Self {
        Self::default()
    }
}

/// Rollback mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A new branch at the checkpoint, in a new work tree if this one has changes.
    #[default]
    Branch,
    /// A new commit on this branch that restores the tracked files.
    Restore,
}

/// Progress of a rollback.
///
/// Each step is noted after it is done, so an interrupted step is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The rollback is planned.
    Planned,
    /// A ref holds every byte of the work tree and of the index.
    Rescued,
    /// The commit exists: the checkpoint's code, plus what was learned.
    Built,
    /// The branch points to that commit.
    Branched,
    /// The work tree has that commit checked out.
    CheckedOut,
    /// The failed pattern is recorded in this work tree too.
    Learned,
    /// The rollback is in the progress, and its event was emitted.
    Recorded,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 7] =
        [Self::Planned, Self::Rescued, Self::Built, Self::Branched, Self::CheckedOut, Self::Learned, Self::Recorded];
}

/// A rollback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rollback {
    /// Its id, a `UUIDv7`.
    pub id: String,
    /// When it started.
    pub started_at: Time,
    /// The rollback mode.
    pub mode: Mode,
    /// The reason.
    pub why: String,
    /// The row of the decision table that proposed it.
    pub row: u8,
    /// The tag of the checkpoint.
    pub checkpoint: String,
    /// Its commit.
    pub commit: String,
    /// The commit of HEAD before the rollback.
    pub head: String,
    /// The branch before the rollback.
    pub branch: Option<String>,
    /// The session that started it.
    #[serde(default)]
    pub session: Option<String>,
    /// The features that had regressed.
    #[serde(default)]
    pub regressions: Vec<String>,
    /// The last completed step.
    pub step: Step,
    /// The rescue ref, which holds the state before the rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
    /// Further rescue refs: files saved during the rollback, before it overwrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_rescues: Vec<String>,
    /// The branch to continue on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The commit to continue from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// The new work tree; absent if this one was switched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_code_that_fails_again_is_the_same_try() {
        let at = Time::parse("2025-12-24T12:00:00Z").unwrap();
        let mut attempts = Attempts::default();
        for (state, what) in [("a", "test"), ("a", "test"), ("b", "test"), ("b", "A-001"), ("a", "test")] {
            attempts.failed(state, what, at);
        }
        assert_eq!(attempts.failed, 2);
        attempts.failed("c", "test", at);
        assert_eq!((attempts.failed, attempts.state.as_deref()), (3, Some("c")));
        assert!(attempts.knows("c", "test") && attempts.knows("b", "A-001") && !attempts.knows("c", "A-001"));
    }

    #[test]
    fn all_is_well_once_everything_that_failed_succeeds() {
        let at = Time::parse("2025-12-24T12:00:00Z").unwrap();
        let mut attempts = Attempts::default();
        attempts.failed("a", "test", at);
        attempts.failed("b", "A-001", at);
        attempts.passed("other", at);
        attempts.passed("test", at);
        assert_eq!(attempts.failed, 2, "A-001 fails still");
        attempts.passed("A-001", at);
        assert_eq!(attempts, Attempts { since: Some(at), ..Attempts::default() });
        for number in 0..250 {
            attempts.failed(&number.to_string(), &number.to_string(), at);
        }
        assert_eq!((attempts.failed, attempts.before.len(), attempts.failing.len()), (250, 100, 100));
    }

    #[test]
    fn only_the_newest_rollbacks_are_kept() {
        let mut journal = Journal::default();
        for number in 0..60 {
            journal.current = Some(Rollback {
                id: number.to_string(),
                started_at: Time::parse("2025-12-24T12:00:00Z").unwrap(),
                mode: Mode::Branch,
                why: String::new(),
                row: 2,
                checkpoint: String::new(),
                commit: String::new(),
                head: String::new(),
                branch: None,
                session: None,
                regressions: Vec::new(),
                step: Step::Planned,
                rescue: None,
                later_rescues: Vec::new(),
                target: None,
                made: None,
                worktree: None,
                other: Members::default(),
            });
            journal.finish();
        }
        assert_eq!(journal.past.len(), 50);
        assert_eq!(journal.past[0].id, "10");
        assert!(journal.current.is_none());
    }
}
