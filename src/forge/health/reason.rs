//! Reasons of a colour: a closed set of codes, each with a safe next command.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// What a reason does to the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing: it is worth knowing.
    Info,
    /// It makes yellow.
    Warning,
    /// It makes red.
    Error,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Which one.
    pub code: Code,
    /// What it does to the colour.
    pub severity: Severity,
    /// What was found.
    pub detail: String,
    /// Since when, if that is known.
    pub since: Option<Time>,
    /// A command that is safe to run next.
    pub next: String,
}

impl Reason {
    /// Makes a reason.
    pub(super) fn new(severity: Severity, code: Code, detail: impl Into<String>, since: Option<Time>) -> Self {
        Self { code, severity, detail: detail.into(), since, next: code.next().to_owned() }
    }

    /// Names the command to run next, where it depends on what was found.
    pub(super) fn run(self, next: impl Into<String>) -> Self {
        Self { next: next.into(), ..self }
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident, $name:literal, $next:literal;)*) => {
        /// Which reason it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code {
            $($(#[doc = $doc])+ $code,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$code),*];

            /// Returns the word in JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }

            /// Returns a command that is safe to run next.
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
    /// `knowledge.json` is missing.
    KnowledgeMissing, "knowledge_missing", "helmdeck forge doctor --fix";
    /// `knowledge.json` cannot be read.
    KnowledgeCorrupt, "knowledge_corrupt", "helmdeck forge repair .forge/memory/long-term/knowledge.json";
    /// `features.json` cannot be read.
    FeaturesCorrupt, "features_corrupt", "helmdeck forge repair .forge/memory/long-term/features.json";
    /// Another file of the memory is damaged, or lines of it are.
    FileCorrupt, "file_corrupt", "helmdeck forge repair";
    /// A newer program wrote a file.
    SchemaNewer, "schema_newer", "helmdeck --version";
    /// Nothing was learned or confirmed for more than seven days.
    Stale, "stale", "helmdeck forge knowledge search";
    /// `knowledge.json` has grown large.
    Oversize, "oversize", "helmdeck forge knowledge compact";
    /// A time lies in the future.
    ClockSkew, "clock_skew", "helmdeck forge doctor";
    /// `progress.txt` is missing.
    ProgressMissing, "progress_missing", "helmdeck forge session start";
    /// No session has begun in this clone.
    NotBegun, "not_begun", "helmdeck forge session start";
    /// `progress.txt` is no text.
    ProgressNotText, "progress_not_text", "helmdeck forge repair .forge/memory/short-term/progress.txt";
    /// A session is active, and has noted nothing for more than an hour.
    StaleActive, "stale_active", "helmdeck forge session status";
    /// No session is active, and nothing was noted for more than an hour.
    StaleIdle, "stale_idle", "helmdeck forge session start";
    /// A session stopped without an end.
    AbandonedSession, "abandoned_session", "helmdeck forge session start";
    /// Work is paused.
    Paused, "paused", "helmdeck forge session start";
    /// Lines of `progress.txt` follow no rule.
    MalformedLines, "malformed_lines", "helmdeck forge doctor";
    /// The settings of the events make no sense.
    EventsSettings, "events_settings", "helmdeck forge doctor";
    /// No feature is planned.
    NoFeatures, "no_features", "helmdeck forge features list";
    /// Fewer than half of the features work.
    FewPassing, "few_passing", "helmdeck forge features next";
    /// Half to four fifths of the features work.
    SomePassing, "some_passing", "helmdeck forge features next";
    /// A feature that worked does not work any more.
    Regression, "regression", "helmdeck forge features list";
    /// A feature says that it works, without evidence.
    UnverifiedPass, "unverified_pass", "helmdeck forge features list";
    /// Nothing was verified since the code has changed.
    StalePass, "stale_pass", "helmdeck forge features verify --stale";
    /// The project lies in no repository, as it was set up.
    NoGit, "no_git", "helmdeck forge doctor";
    /// The project lay in a repository, and there is none.
    RepositoryLost, "repository_lost", "helmdeck forge doctor";
    /// git cannot say how things stand.
    GitFailed, "git_failed", "git status";
    /// Conflicts are not resolved.
    Unmerged, "unmerged", "git status";
    /// The branch and its base have each gone on.
    Diverged, "diverged", "helmdeck forge recover assess";
    /// There is nothing to measure the branch against.
    NoBase, "no_base", "helmdeck forge doctor";
    /// Something is not committed.
    Uncommitted, "uncommitted", "git status";
    /// There is no checkpoint to which one could go back.
    NoCheckpoint, "no_checkpoint", "helmdeck forge checkpoint create";
    /// The last checkpoint is more than ten commits back.
    CheckpointLag, "checkpoint_lag", "helmdeck forge checkpoint create";
    /// A merge, rebase or the like is half done.
    Operation, "operation", "git status";
    /// The merge driver of the memory is not set up in this clone.
    MergeDriverMissing, "merge_driver_missing", "helmdeck forge init --merge-driver";
    /// Issues are switched off.
    LinearOff, "linear_off", "helmdeck forge doctor";
    /// `active.json` cannot be read.
    ActiveCorrupt, "active_corrupt", "helmdeck forge repair .forge/linear/active.json";
    /// Changes of issues could not be delivered.
    OutboxFailed, "outbox_failed", "helmdeck forge doctor";
    /// An issue was changed on both sides.
    Conflict, "conflict", "helmdeck forge doctor";
    /// Issues could not be fetched.
    PullFailed, "pull_failed", "helmdeck forge doctor";
    /// A commit belongs to no issue.
    OrphanCommits, "orphan_commits", "helmdeck forge lint-commits";
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
                next.starts_with("helmdeck forge ") || matches!(next, "git status" | "helmdeck --version"),
                "{next}"
            );
            for never in ["--force", "reset", "clean", "rm ", " -D", "stash", "checkout --"] {
                assert!(!next.contains(never), "{next}");
            }
        }
        assert_eq!(words.len(), Code::ALL.len());
    }
}
