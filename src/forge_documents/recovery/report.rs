//! Report of an assessment: every measure, the row of the table, and the proposal.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decide::{Action, Class, Size};
use super::unknown::Unknown;
use helmdeck_forge_files::time::Time;

/// Report of an assessment. It only proposes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// When it was made.
    pub at: Time,
    /// How bad it is.
    pub class: Class,
    /// The row of the table that decided, 0 to 6.
    pub row: u8,
    /// The proposed action.
    pub action: Action,
    /// Why the state is unknown; empty unless the class is `UNKNOWN`.
    pub unknown: Vec<Reason>,
    /// The tag of the checkpoint for a rollback.
    pub checkpoint: Option<String>,
    /// Its commit.
    pub checkpoint_commit: Option<String>,
    /// Where HEAD is.
    pub head: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// The measures. Absent if there is no checkpoint to measure against.
    pub measures: Option<Measures>,
    /// Whether a person has acknowledged these very reasons at this HEAD, so that no new pause is
    /// needed.
    pub acknowledged: bool,
}

/// A reason why the state is unknown, with a next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The reason.
    #[serde(flatten)]
    pub reason: Unknown,
    /// The reason in words.
    pub text: String,
    /// A command that is safe to run next.
    pub next: String,
}

impl From<Unknown> for Reason {
    fn from(reason: Unknown) -> Self {
        Self {
            text: reason.text(),
            next: reason.next().to_owned(),
            reason,
        }
    }
}

/// Measures against the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Measures {
    /// How many paths differ: changed, new and untracked, but neither ignored nor below `.forge/`.
    pub files: usize,
    /// How many lines were added or deleted; a binary file counts as 50.
    pub lines: u64,
    /// How many commits lie between the checkpoint and HEAD.
    pub commits: u64,
    /// How far that is.
    pub size: Size,
    /// Protected paths that were touched.
    pub touched_protected: Vec<String>,
    /// How many features passed at the checkpoint.
    pub features_listed: usize,
    /// Those of them that fail now.
    pub regressions: Vec<String>,
    /// How the first verify command went.
    pub verify: Verify,
}

/// How the first verify command went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verify {
    /// The command; absent if none is configured, which counts as a success.
    pub command: Option<String>,
    /// Whether it was run now.
    pub ran: bool,
    /// Whether it succeeded, or was not run.
    pub passed: bool,
    /// How it ended; absent if it was not run, or did not end by itself.
    pub exit: Option<i32>,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// The end of its output, at most 4,000 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

impl Report {
    /// Says whether work must pause.
    ///
    /// A project that never had a checkpoint is young, not broken. On a branch without the
    /// checkpoint, as after a rebase, only a target for a rollback is missing. Acknowledged reasons
    /// need no second answer.
    #[must_use]
    pub fn must_pause(&self) -> bool {
        self.class == Class::Unknown
            && !self.acknowledged
            && !self
                .unknown
                .iter()
                .all(|reason| reason.reason.is_no_alarm())
    }
}

impl Action {
    /// Returns the action in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Fix => "continue with fixes",
            Self::RollBack => "roll back",
            Self::Pause => "alert a human, and pause",
        }
    }
}

impl fmt::Display for Report {
    /// Every measure and the row, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        writeln!(
            f,
            "{} (row {}): {}",
            self.class,
            self.row,
            self.action.text()
        )?;
        for reason in &self.unknown {
            writeln!(
                f,
                "  {}: {} (next: {})",
                reason.reason.code(),
                reason.text,
                reason.next
            )?;
        }
        writeln!(
            f,
            "checkpoint: {} at {}",
            or_none(&self.checkpoint),
            or_none(&self.checkpoint_commit)
        )?;
        writeln!(
            f,
            "head: {} on {}",
            or_none(&self.head),
            or_none(&self.branch)
        )?;
        let Some(measures) = &self.measures else {
            return writeln!(f, "measures: none, there is nothing to measure against");
        };
        writeln!(f, "files: {}", measures.files)?;
        writeln!(f, "lines: {}", measures.lines)?;
        writeln!(f, "commits: {}", measures.commits)?;
        writeln!(f, "size: {}", measures.size)?;
        let list = |all: &[String]| {
            if all.is_empty() {
                String::new()
            } else {
                format!(" ({})", all.join(", "))
            }
        };
        writeln!(
            f,
            "protected: {}{}",
            measures.touched_protected.len(),
            list(&measures.touched_protected)
        )?;
        writeln!(
            f,
            "regressions: {} of {}{}",
            measures.regressions.len(),
            measures.features_listed,
            list(&measures.regressions)
        )?;
        let verify = &measures.verify;
        let outcome = match (verify.ran, verify.passed) {
            (true, true) => format!("pass, in {} ms", verify.ms),
            (true, false) => format!("fail, in {} ms", verify.ms),
            (false, _) => "not run".to_owned(),
        };
        writeln!(f, "verify: {outcome} ({})", or_none(&verify.command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            at: Time::parse("2025-12-24T12:00:00Z").unwrap(),
            class: Class::Minor,
            row: 6,
            action: Action::Fix,
            unknown: Vec::new(),
            checkpoint: Some("checkpoint/SX9-123-v1".into()),
            checkpoint_commit: Some("1".repeat(40)),
            head: Some("2".repeat(40)),
            branch: Some("main".into()),
            measures: Some(Measures {
                files: 3,
                lines: 77,
                commits: 4,
                size: Size::Small,
                touched_protected: vec![".github/workflows/ci.yml".into()],
                features_listed: 5,
                regressions: vec!["FORGE-001".into()],
                verify: Verify {
                    command: Some("cargo test".into()),
                    ran: true,
                    passed: true,
                    exit: Some(0),
                    ms: 812,
                    output: String::new(),
                },
            }),
            acknowledged: false,
        }
    }

    #[test]
    fn the_report_prints_every_measure_and_the_row() {
        let text = report().to_string();
        for part in [
            "MINOR (row 6): continue with fixes\n",
            "checkpoint: checkpoint/SX9-123-v1 at 1111",
            "head: 2222",
            " on main\n",
            "files: 3\n",
            "lines: 77\n",
            "commits: 4\n",
            "size: small\n",
            "protected: 1 (.github/workflows/ci.yml)\n",
            "regressions: 1 of 5 (FORGE-001)\n",
            "verify: pass, in 812 ms (cargo test)\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let read: Report = serde_json::from_value(serde_json::to_value(report()).unwrap()).unwrap();
        assert_eq!(read, report());
    }

    #[test]
    fn a_young_project_does_not_pause_and_a_broken_one_does_until_somebody_has_answered() {
        let unknown = |reasons: Vec<Unknown>, acknowledged| {
            let unknown = reasons.into_iter().map(Reason::from).collect();
            Report {
                class: Class::Unknown,
                row: 0,
                action: Action::Pause,
                unknown,
                acknowledged,
                ..report()
            }
        };
        assert!(!report().must_pause());
        assert!(!unknown(vec![Unknown::NoCheckpoint], false).must_pause());
        let aside = Unknown::NotDescendant {
            checkpoint: "checkpoint/A-1-v1".to_owned(),
        };
        assert!(!unknown(vec![aside.clone()], false).must_pause());
        assert!(unknown(vec![aside, Unknown::Unmerged { paths: 1 }], false).must_pause());
        assert!(
            unknown(
                vec![Unknown::NoCheckpoint, Unknown::Unmerged { paths: 1 }],
                false
            )
            .must_pause()
        );
        assert!(unknown(vec![Unknown::Detached], false).must_pause());
        assert!(!unknown(vec![Unknown::Detached], true).must_pause());
        let text = unknown(vec![Unknown::Detached], false).to_string();
        assert!(
            text.contains("UNKNOWN (row 0)") && text.contains("detached: HEAD is detached"),
            "{text}"
        );
    }
}
