//! Payloads of events: references and counts, never file contents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of a total and of the passing part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Number that pass.
    pub passing: u64,
    /// Total number.
    pub total: u64,
}

/// Payload of `session.start`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The branch it began on, if any.
    pub branch: Option<String>,
    /// The keys of the active issues.
    pub active_issues: Vec<String>,
    /// Counts of the features.
    pub features: Tally,
    /// The worst colour of the health: `green`, `yellow`, `red` or `grey`; `None` if it was not
    /// measured.
    pub health: Option<String>,
}

/// Payload of `session.end` and `session.abandoned`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// The reason, in one word: `done`, `signal`, `abandoned`.
    pub reason: String,
    /// Number of commits made in it.
    pub commits: u64,
    /// Number of entries learned in it.
    pub learned: u64,
    /// Duration, in seconds.
    pub duration_s: u64,
    /// Whether it left uncommitted changes.
    pub dirty: bool,
}

/// Payload of `checkpoint`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reached {
    /// The tag.
    pub tag: String,
    /// The commit.
    pub commit: String,
    /// Number of commands that ran, and that succeeded.
    pub checks: Tally,
    /// Whether it is safe to roll back to.
    pub can_rollback_to: bool,
}

/// Payload of `learning`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Learned {
    /// The entry.
    pub id: String,
    /// The kind of the entry: `pattern`, `mistake`, `decision`.
    pub kind: String,
    /// The context of the entry, cut to 200 characters.
    pub context: String,
}

/// Payload of `focus`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Focused {
    /// The issue or task before, if any.
    pub from: Option<String>,
    /// The issue or task now, if any.
    pub to: Option<String>,
    /// The phase now.
    pub phase: Option<String>,
}

/// Payload of `linear`: an issue changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssueChanged {
    /// Its key.
    pub key: String,
    /// What changed, in one word: `added`, `state`, `changed`, `comment`, `done`, `reopened`,
    /// `renamed` or `removed`.
    pub what: String,
    /// The state, or the key, before.
    pub from: Option<String>,
    /// The state, or the key, now.
    pub to: Option<String>,
}
