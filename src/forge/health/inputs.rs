//! Inputs of the health rules: numbers and times.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::repair::Damaged;
use crate::time::Time;

/// All that the five components are judged by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Inputs {
    /// What was learned.
    pub long_term: LongTerm,
    /// What is being done.
    pub short_term: ShortTerm,
    /// What works.
    pub features: Features,
    /// The repository.
    pub git: Git,
    /// The issues.
    pub linear: Linear,
}

/// How a file was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum File {
    /// It is there and can be read.
    #[default]
    Valid,
    /// Not found.
    Absent,
    /// A newer program wrote it: what is known of its form.
    Newer(String),
    /// It cannot be read: where, and what was expected.
    Damaged(String),
}

/// Where a time was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The newest entry of the file.
    HealthSample,
    /// The last event in the journal.
    Journal,
    /// The last commit that changed the file.
    Commit,
    /// When the file was last written, which a checkout sets too.
    Mtime,
}

/// A time, and where it was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Last {
    /// The time.
    pub at: Time,
    /// Where it was taken from.
    pub source: Source,
}

/// What was learned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LongTerm {
    /// `knowledge.json`.
    pub knowledge: File,
    /// `features.json`.
    pub features: File,
    /// When something was last learned or confirmed.
    pub last: Option<Last>,
    /// How many entries it has.
    pub entries: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// What is being done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShortTerm {
    /// `progress.txt`.
    pub progress: File,
    /// Whether this clone is still unused: it has neither a `progress.txt` nor a journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_begun: bool,
    /// When something was last noted.
    pub last: Option<Last>,
    /// Whether a session is active.
    pub active: bool,
    /// The name of a session that stopped without an end, and when its last command ran.
    pub abandoned: Option<(String, Time)>,
    /// Why work is paused, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<(String, Option<Time>)>,
    /// How many lines follow no rule.
    pub malformed_lines: u64,
    /// What is wrong with the settings of the events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// What works.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Features {
    /// `features.json`.
    pub file: File,
    /// How many work, with evidence.
    pub passing: u64,
    /// How many there are, without those that were put off.
    pub total: u64,
    /// Those that worked and do not work any more, and since when the first of them does not.
    pub regressed: Vec<String>,
    /// Since when the first of them does not work.
    pub regressed_since: Option<Time>,
    /// How many say that they work, without evidence. They do not count as passing.
    pub unverified: u64,
    /// Which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unverified_ids: Vec<String>,
    /// All that a person verifies, and no test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manual: Vec<String>,
    /// How many work, as was verified on code that has changed since; `None` if that was not looked into.
    pub stale: Option<u64>,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// The repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Git {
    /// Whether the project was set up without one.
    pub disabled: bool,
    /// Whether there is none.
    pub absent: bool,
    /// Why git cannot say how things stand.
    pub failed: Option<String>,
    /// How many paths have conflicts.
    pub unmerged: u64,
    /// How many paths are not committed, outside `.forge/`; untracked ones count.
    pub uncommitted: u64,
    /// The files of the memory among them, from the root of the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmerged_memory: Vec<String>,
    /// Whether the merge driver of the memory is not set up in this clone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_driver_missing: bool,
    /// What is half done: `merge`, `rebase`.
    pub operation: Option<String>,
    /// What the branch is measured against.
    pub base: Option<String>,
    /// How many commits it has that the base has not.
    pub ahead: u64,
    /// How many commits the base has that it has not.
    pub behind: u64,
    /// Whether the two merge without conflict; looked into only if they have diverged.
    pub merges_cleanly: Option<bool>,
    /// The newest checkpoint to which one could go back.
    pub checkpoint: Option<String>,
    /// If there are checkpoints that are not in this clone: the command that fetches them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_checkpoints: Option<String>,
    /// When it was made.
    pub checkpoint_at: Option<Time>,
    /// How many commits came after it.
    pub commits_since: u64,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// The issues.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Linear {
    /// Whether issues are switched off.
    pub off: bool,
    /// Whether there is no repository whose commits could be looked at.
    pub no_git: bool,
    /// `active.json`.
    pub active: File,
    /// How many changes were tried three times in vain, or given up.
    pub outbox_failed: u64,
    /// How many issues were changed on both sides.
    pub conflicts: u64,
    /// Since when issues cannot be fetched.
    pub pull_failed: Option<Time>,
    /// How many commits belong to no issue.
    pub orphans: u64,
    /// The first of them, shortened.
    pub orphan_commits: Vec<String>,
}
