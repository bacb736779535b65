//! Inputs of the health rules: numbers and times.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::repair::Damaged;
use crate::time::Time;

/// Inputs of the five components.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Inputs {
    /// The long-term memory: what was learned.
    pub long_term: LongTerm,
    /// The short-term memory: work in progress.
    pub short_term: ShortTerm,
    /// The features.
    pub features: Features,
    /// The repository.
    pub git: Git,
    /// The issues.
    pub linear: Linear,
}

/// State of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum File {
    /// It exists and is readable.
    #[default]
    Valid,
    /// Not found.
    Absent,
    /// A newer program wrote it; with what is known of its version.
    Newer(String),
    /// It is unreadable: the position, and what was expected.
    Damaged(String),
}

/// Source of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The newest entry of the file.
    HealthSample,
    /// The last event in the journal.
    Journal,
    /// The last commit that changed the file.
    Commit,
    /// The modification time of the file, which a checkout changes too.
    Mtime,
}

/// A time, and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Last {
    /// The time.
    pub at: Time,
    /// The source.
    pub source: Source,
}

/// Inputs of the long-term memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LongTerm {
    /// The knowledge.
    pub knowledge: File,
    /// The features.
    pub features: File,
    /// When something was last learned or confirmed.
    pub last: Option<Last>,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// Inputs of the short-term memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShortTerm {
    /// `progress.txt`.
    pub progress: File,
    /// Whether this clone is still unused: it has neither a `progress.txt` nor a journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_begun: bool,
    /// When progress was last noted.
    pub last: Option<Last>,
    /// Whether a session is active.
    pub active: bool,
    /// The name of an abandoned session, and when its last command ran.
    pub abandoned: Option<(String, Time)>,
    /// Why work is paused, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<(String, Option<Time>)>,
    /// Number of malformed lines.
    pub malformed_lines: u64,
    /// Error of the event settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// Inputs of the features.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Features {
    /// The features.
    pub file: File,
    /// Number that pass, with evidence.
    pub passing: u64,
    /// Total number, without deferred features.
    pub total: u64,
    /// The regressed features.
    pub regressed: Vec<String>,
    /// When the first of them regressed.
    pub regressed_since: Option<Time>,
    /// Number that claim to pass without evidence. They do not count as passing.
    pub unverified: u64,
    /// Their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unverified_ids: Vec<String>,
    /// Number of passes on older code; `None` if this was not checked.
    pub stale: Option<u64>,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// Inputs of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Git {
    /// Whether the project was set up without git.
    pub disabled: bool,
    /// Whether the repository is missing.
    pub absent: bool,
    /// The error, if git failed.
    pub failed: Option<String>,
    /// Number of paths with conflicts.
    pub unmerged: u64,
    /// Number of uncommitted paths outside `.forge/`, untracked ones included.
    pub uncommitted: u64,
    /// The memory files with conflicts, relative to the root of the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmerged_memory: Vec<String>,
    /// Whether the merge driver of the memory is not set up in this clone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_driver_missing: bool,
    /// The operation in progress: `merge`, `rebase`.
    pub operation: Option<String>,
    /// The base of the branch.
    pub base: Option<String>,
    /// Number of commits that the branch is ahead of the base.
    pub ahead: u64,
    /// Number of commits that the branch is behind the base.
    pub behind: u64,
    /// Whether branch and base merge without conflict; checked only if they have diverged.
    pub merges_cleanly: Option<bool>,
    /// The newest checkpoint to roll back to.
    pub checkpoint: Option<String>,
    /// The command that fetches checkpoints which are missing in this clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_checkpoints: Option<String>,
    /// When that checkpoint was created.
    pub checkpoint_at: Option<Time>,
    /// Number of work commits after it.
    pub commits_since: u64,
    /// Other files that are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// Inputs of the issues.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Linear {
    /// Whether issues are switched off.
    pub off: bool,
    /// Whether there is no repository with commits to check.
    pub no_git: bool,
    /// `active.json`.
    pub active: File,
    /// Number of changes that failed three times, or were abandoned.
    pub outbox_failed: u64,
    /// Number of issues that were changed on both sides.
    pub conflicts: u64,
    /// Since when fetching issues fails.
    pub pull_failed: Option<Time>,
    /// Number of commits without an issue.
    pub orphans: u64,
    /// The first of them, as short ids.
    pub orphan_commits: Vec<String>,
}
