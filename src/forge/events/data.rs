//! Payloads of events: references and counts, never file contents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many of the features work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// How many work.
    pub passing: u64,
    /// How many there are.
    pub total: u64,
}

/// What `session.start` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The branch it began on, if any.
    pub branch: Option<String>,
    /// The issues that are worked on, by their keys.
    pub active_issues: Vec<String>,
    /// How many of the features work.
    pub features: Tally,
    /// The worst colour of the health: `green`, `yellow`, `red` or `grey`; `None` if it was not measured.
    pub health: Option<String>,
}

/// What `session.end` and `session.abandoned` say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// Why, in a word: `done`, `signal`, `abandoned`.
    pub reason: String,
    /// How many commits it made.
    pub commits: u64,
    /// How much it learned, in entries.
    pub learned: u64,
    /// How long it took, in seconds.
    pub duration_s: u64,
    /// Whether it left changes that are not committed.
    pub dirty: bool,
}

/// What `checkpoint` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reached {
    /// The tag.
    pub tag: String,
    /// The commit.
    pub commit: String,
    /// How many commands were run, and how many of them succeeded.
    pub checks: Tally,
    /// Whether one may go back to it.
    pub can_rollback_to: bool,
}

/// What `learning` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Learned {
    /// The entry.
    pub id: String,
    /// What kind of entry it is: `pattern`, `mistake`, `decision`.
    pub kind: String,
    /// When it matters, in the entry's own words, cut to 200 characters.
    pub context: String,
}

/// What `focus` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Focused {
    /// The issue or task before, if any.
    pub from: Option<String>,
    /// The issue or task now, if any.
    pub to: Option<String>,
    /// The phase now.
    pub phase: Option<String>,
}
