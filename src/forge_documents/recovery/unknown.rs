//! Reasons why the state cannot be determined, each with a safe next step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Why the state cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(tag = "code", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Unknown {
    /// No checkpoint was ever made.
    NoCheckpoint,
    /// There are checkpoints, but none of them is usable for a rollback.
    NoUsableCheckpoint {
        /// The newest of them.
        checkpoint: String,
    },
    /// The checkpoints were made in another clone, and their code is not in this one.
    CheckpointsNotHere {
        /// The newest of them.
        checkpoint: String,
        /// The command that fetches them; without a remote, the one that makes a new checkpoint.
        fetch: String,
    },
    /// The manifest of a checkpoint is damaged.
    ManifestCorrupt {
        /// Which one.
        checkpoint: String,
    },
    /// The tag of a checkpoint names another commit than its manifest.
    TagMoved {
        /// Which one.
        checkpoint: String,
    },
    /// No commit of this branch has the code or the changes of a checkpoint.
    NotDescendant {
        /// Which one.
        checkpoint: String,
    },
    /// Git is in the middle of something.
    Operation {
        /// What: `merge`, `rebase`, `cherry-pick`, `revert`, `bisect`.
        operation: String,
    },
    /// Some paths are unmerged.
    Unmerged {
        /// How many.
        paths: u32,
    },
    /// The lock of git's index has been there for more than ten minutes.
    IndexLocked {
        /// For how long, in seconds.
        seconds: u64,
    },
    /// Git cannot read its index.
    IndexUnreadable {
        /// The message of git.
        detail: String,
    },
    /// HEAD is detached, and no session runs that would explain it.
    Detached,
    /// The first verify command cannot be started.
    VerifyCannotStart {
        /// The command.
        command: String,
        /// Why not.
        detail: String,
    },
    /// The first verify command took too long.
    VerifyTimedOut {
        /// The command.
        command: String,
        /// How long it was given, in seconds.
        seconds: u64,
    },
    /// Knowledge, a feature or the index of the artifacts is damaged.
    MemoryCorrupt {
        /// Which file.
        path: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Files on which another session works have changed.
    OtherSession {
        /// The session.
        session: String,
        /// Some of the files.
        files: Vec<String>,
    },
    /// The clock is more than five minutes before the time of the checkpoint.
    ClockBefore {
        /// The checkpoint.
        checkpoint: String,
        /// By how much, in seconds.
        seconds: u64,
    },
    /// The verification fails although the code is the verified one: its environment has changed.
    Environment {
        /// The command that failed.
        command: String,
    },
}

impl Unknown {
    /// Returns the code of the reason.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.into()
    }

    /// Says whether it forbids a rollback, even to a checkpoint that the caller names.
    ///
    /// That is so if git is in the middle of an operation, or what would be carried over cannot be
    /// read. `answered` says that a person has acknowledged the reason. This settles a doubt, but
    /// repairs nothing.
    #[must_use]
    pub const fn forbids(&self, answered: bool) -> bool {
        match self {
            Self::Operation { .. }
            | Self::Unmerged { .. }
            | Self::IndexLocked { .. }
            | Self::IndexUnreadable { .. }
            | Self::MemoryCorrupt { .. } => true,
            Self::OtherSession { .. } | Self::ClockBefore { .. } => !answered,
            _ => false,
        }
    }

    /// Says whether the only problem is that there is no checkpoint to go back to.
    ///
    /// None was made, none is on this branch, or none is in this clone.
    #[must_use]
    pub const fn is_no_alarm(&self) -> bool {
        matches!(
            self,
            Self::NoCheckpoint | Self::NotDescendant { .. } | Self::CheckpointsNotHere { .. }
        )
    }

    /// Says whether a new checkpoint would remove this reason.
    #[must_use]
    pub const fn ends_with_a_checkpoint(&self) -> bool {
        self.is_no_alarm() || matches!(self, Self::NoUsableCheckpoint { .. })
    }

    /// Says whether an acknowledgement holds on later commits too.
    ///
    /// An acknowledged merge or similar operation ends with a commit; another one on top of that
    /// commit needs a new acknowledgement.
    #[must_use]
    pub const fn outlives_a_commit(&self) -> bool {
        !matches!(
            self,
            Self::Operation { .. } | Self::Unmerged { .. } | Self::IndexLocked { .. }
        )
    }

    /// Says whether only a run of the verify command can tell that this reason is gone.
    #[must_use]
    pub const fn is_of_the_verification(&self) -> bool {
        matches!(
            self,
            Self::VerifyCannotStart { .. } | Self::VerifyTimedOut { .. } | Self::Environment { .. }
        )
    }

    /// Returns the reason in words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NoCheckpoint => "no checkpoint was ever made".to_owned(),
            Self::NoUsableCheckpoint { checkpoint } => {
                format!(
                    "there are checkpoints, but none can be gone back to; the newest is {checkpoint}"
                )
            }
            Self::CheckpointsNotHere { checkpoint, .. } => {
                format!(
                    "the code of the checkpoints is not in this clone: the history to {checkpoint} is missing"
                )
            }
            Self::ManifestCorrupt { checkpoint } => {
                format!("the manifest of {checkpoint} is damaged")
            }
            Self::TagMoved { checkpoint } => {
                format!("the tag of {checkpoint} names another commit than its manifest")
            }
            Self::NotDescendant { checkpoint } => {
                format!(
                    "no commit of this branch is a checkpoint; the newest elsewhere is {checkpoint}"
                )
            }
            Self::Operation { operation } => format!("git is in the middle of a {operation}"),
            Self::Unmerged { paths: 1 } => "one path is unmerged".to_owned(),
            Self::Unmerged { paths } => format!("{paths} paths are unmerged"),
            Self::IndexLocked { seconds } => {
                format!("the lock of git's index is {seconds} seconds old")
            }
            Self::IndexUnreadable { detail } => format!("git cannot read its index: {detail}"),
            Self::Detached => "HEAD is detached, and no session runs".to_owned(),
            Self::VerifyCannotStart { command, detail } => {
                format!("{command:?} cannot be started: {detail}")
            }
            Self::VerifyTimedOut { command, seconds } => {
                format!("{command:?} did not end within {seconds} seconds")
            }
            Self::MemoryCorrupt { path, detail } => format!("{path} is damaged: {detail}"),
            Self::OtherSession { session, files } => {
                format!(
                    "files of session {session} have changed: {}",
                    files.join(", ")
                )
            }
            Self::ClockBefore {
                checkpoint,
                seconds,
            } => {
                format!("the clock stands {seconds} seconds before {checkpoint}")
            }
            Self::Environment { command } => {
                format!(
                    "{command:?} fails on code that was verified, so something around it has changed"
                )
            }
        }
    }

    /// Returns a safe next command, which destroys nothing.
    #[must_use]
    pub fn next(&self) -> &str {
        match self {
            Self::CheckpointsNotHere { fetch, .. } => fetch,
            Self::NoCheckpoint | Self::NoUsableCheckpoint { .. } | Self::NotDescendant { .. } => {
                "helmdeck forge checkpoint create"
            }
            Self::ManifestCorrupt { .. } | Self::MemoryCorrupt { .. } => "helmdeck forge repair",
            Self::TagMoved { .. } => "helmdeck forge checkpoint list",
            Self::Operation { .. } | Self::Unmerged { .. } | Self::Detached => "git status",
            Self::IndexLocked { .. } | Self::IndexUnreadable { .. } => "git fsck",
            Self::VerifyCannotStart { .. }
            | Self::VerifyTimedOut { .. }
            | Self::Environment { .. } => "helmdeck forge doctor",
            Self::OtherSession { .. } => "helmdeck forge prime",
            Self::ClockBefore { .. } => "date --utc",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each.
    fn every() -> Vec<Unknown> {
        let checkpoint = || "A-1-v1".to_owned();
        let command = || "cargo test".to_owned();
        let detail = || "why".to_owned();
        vec![
            Unknown::NoCheckpoint,
            Unknown::NoUsableCheckpoint {
                checkpoint: checkpoint(),
            },
            Unknown::CheckpointsNotHere {
                checkpoint: checkpoint(),
                fetch: "git fetch".into(),
            },
            Unknown::ManifestCorrupt {
                checkpoint: checkpoint(),
            },
            Unknown::TagMoved {
                checkpoint: checkpoint(),
            },
            Unknown::NotDescendant {
                checkpoint: checkpoint(),
            },
            Unknown::Operation {
                operation: "merge".into(),
            },
            Unknown::Unmerged { paths: 2 },
            Unknown::IndexLocked { seconds: 601 },
            Unknown::IndexUnreadable { detail: detail() },
            Unknown::Detached,
            Unknown::VerifyCannotStart {
                command: command(),
                detail: detail(),
            },
            Unknown::VerifyTimedOut {
                command: command(),
                seconds: 600,
            },
            Unknown::MemoryCorrupt {
                path: "x.json".into(),
                detail: detail(),
            },
            Unknown::OtherSession {
                session: "2025-12-24-session-001".into(),
                files: vec!["a".into()],
            },
            Unknown::ClockBefore {
                checkpoint: checkpoint(),
                seconds: 301,
            },
            Unknown::Environment { command: command() },
        ]
    }

    #[test]
    fn each_reason_has_its_code_in_json_words_and_a_next_step() {
        let mut codes = std::collections::BTreeSet::new();
        for reason in every() {
            let json = serde_json::to_value(&reason).unwrap();
            assert_eq!(json["code"], reason.code());
            assert!(codes.insert(reason.code()), "{reason:?}");
            assert!(!reason.text().is_empty() && !reason.next().is_empty());
            let read: Unknown = serde_json::from_value(json).unwrap();
            assert_eq!(read, reason);
        }
    }
}
