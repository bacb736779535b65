//! Reasons of a colour: a closed set of codes, each with a safe next command.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Effect of a reason on the colour.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// No effect: for information.
    Info,
    /// Makes the component yellow.
    Warning,
    /// Makes the component red.
    Error,
}

/// A reason of a colour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Its code.
    pub code: Code,
    /// Its effect on the colour.
    pub severity: Severity,
    /// What was found.
    pub detail: String,
    /// Since when, if known.
    pub since: Option<Time>,
    /// A safe next command.
    pub next: String,
}

impl Reason {
    /// Makes a reason.
    pub(super) fn new(
        severity: Severity,
        code: Code,
        detail: impl Into<String>,
        since: Option<Time>,
    ) -> Self {
        Self {
            code,
            severity,
            detail: detail.into(),
            since,
            next: code.next().to_owned(),
        }
    }

    /// Sets the next command, if it depends on the finding.
    pub(super) fn run(self, next: impl Into<String>) -> Self {
        Self {
            next: next.into(),
            ..self
        }
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident, $name:literal, $next:literal;)*) => {
        /// Code of a reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code {
            $($(#[doc = $doc])+ $code,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$code),*];

            /// Returns the code's name in JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }

            /// Returns a safe next command.
            #[must_use]
            pub const fn next(self) -> &'static str {
                match self {
                    $(Self::$code => $next,)*
                }
            }
        }
    };
}

codes! {
    /// The folder of knowledge is missing.
    KnowledgeMissing, "knowledge_missing", "helmdeck forge doctor --fix";
    /// `knowledge.json` is unreadable.
    KnowledgeCorrupt, "knowledge_corrupt", "helmdeck forge repair .forge/memory/long-term/knowledge.json";
    /// `features.json` is unreadable.
    FeaturesCorrupt, "features_corrupt", "helmdeck forge repair .forge/memory/long-term/features.json";
    /// Another file of the memory is damaged, at least in some lines.
    FileCorrupt, "file_corrupt", "helmdeck forge repair";
    /// A newer program wrote a file.
    SchemaNewer, "schema_newer", "helmdeck --version";
    /// Nothing was learned or confirmed for more than seven days.
    Stale, "stale", "helmdeck forge knowledge search";
    /// A time is in the future.
    ClockSkew, "clock_skew", "helmdeck forge doctor";
    /// `progress.txt` is missing.
    ProgressMissing, "progress_missing", "helmdeck forge session start";
    /// No session has started in this clone.
    NotBegun, "not_begun", "helmdeck forge session start";
    /// `progress.txt` is not text.
    ProgressNotText, "progress_not_text", "helmdeck forge repair .forge/memory/short-term/progress.txt";
    /// A session is active, and has noted nothing for more than an hour.
    StaleActive, "stale_active", "helmdeck forge status";
    /// No session is active, and nothing was noted for more than an hour.
    StaleIdle, "stale_idle", "helmdeck forge session start";
    /// A session stopped without an end.
    AbandonedSession, "abandoned_session", "helmdeck forge session start";
    /// Work is paused.
    Paused, "paused", "helmdeck forge session start";
    /// `progress.txt` has malformed lines.
    MalformedLines, "malformed_lines", "helmdeck forge doctor";
    /// The event settings are invalid.
    EventsSettings, "events_settings", "helmdeck forge doctor";
    /// No feature is planned.
    NoFeatures, "no_features", "helmdeck forge features list";
    /// Fewer than half of the features pass.
    FewPassing, "few_passing", "helmdeck forge features list";
    /// Half to four fifths of the features pass.
    SomePassing, "some_passing", "helmdeck forge features list";
    /// A feature regressed.
    Regression, "regression", "helmdeck forge features list";
    /// A feature claims to pass without evidence.
    UnverifiedPass, "unverified_pass", "helmdeck forge features list";
    /// The code has changed since the last verification.
    StalePass, "stale_pass", "helmdeck forge verify --stale";
    /// The project was set up without a repository.
    NoGit, "no_git", "helmdeck forge doctor";
    /// The project was in a repository, which is gone.
    RepositoryLost, "repository_lost", "helmdeck forge doctor";
    /// git failed.
    GitFailed, "git_failed", "git status";
    /// There are unresolved conflicts.
    Unmerged, "unmerged", "git status";
    /// The branch and its base have diverged.
    Diverged, "diverged", "helmdeck forge recover assess";
    /// The branch has no base to compare with.
    NoBase, "no_base", "helmdeck forge doctor";
    /// There are uncommitted changes.
    Uncommitted, "uncommitted", "git status";
    /// There is no checkpoint to roll back to.
    NoCheckpoint, "no_checkpoint", "helmdeck forge checkpoint create";
    /// The last checkpoint is more than ten commits back.
    CheckpointLag, "checkpoint_lag", "helmdeck forge checkpoint create";
    /// A merge, rebase or the like is in progress.
    Operation, "operation", "git status";
    /// The merge driver of the memory is not set up in this clone.
    MergeDriverMissing, "merge_driver_missing", "helmdeck forge init --merge-driver";
    /// Issues are switched off.
    LinearOff, "linear_off", "helmdeck forge doctor";
    /// `active.json` is unreadable.
    ActiveCorrupt, "active_corrupt", "helmdeck forge repair .forge/linear/active.json";
    /// Issue changes could not be delivered.
    OutboxFailed, "outbox_failed", "helmdeck forge tracker status";
    /// An issue was changed on both sides.
    Conflict, "conflict", "helmdeck forge tracker status";
    /// Issues could not be fetched.
    PullFailed, "pull_failed", "helmdeck forge tracker status";
    /// A commit has no issue.
    OrphanCommits, "orphan_commits", "helmdeck forge issue list all";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_word_and_a_safe_command() {
        let mut words = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!(words.insert(code.as_str()), "{}", code.as_str());
            let next = code.next();
            assert!(
                next.starts_with("helmdeck forge ")
                    || matches!(next, "git status" | "helmdeck --version"),
                "{next}"
            );
            for never in [
                "--force",
                "reset",
                "clean",
                "rm ",
                " -D",
                "stash",
                "checkout --",
            ] {
                assert!(!next.contains(never), "{next}");
            }
        }
        assert_eq!(words.len(), Code::ALL.len());
    }
}
