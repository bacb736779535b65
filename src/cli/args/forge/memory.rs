//! Command line of `helmdeck forge knowledge`, `features`, `focus`, `artifact` and `skill`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_core::duration::parse_duration;

/// `helmdeck forge knowledge`.
#[derive(Debug, Subcommand)]
pub(crate) enum KnowledgeCommand {
    /// Add an entry: --approach for what works, --issue for what does not, --decision or --invariant
    Add(LearnArgs),
    /// Confirm that an entry still holds
    Confirm {
        /// Id, or its first 6 characters
        id: String,
    },
    /// Replace an entry; the old one is kept as superseded
    Supersede {
        /// Id, or its first 6 characters
        id: String,
        #[command(flatten)]
        by: LearnArgs,
    },
    /// Search entries
    #[command(visible_alias = "list")]
    Search {
        /// Words, or an id or its first 6 characters [default: the newest entries]
        words: Vec<String>,
        /// Maximum number
        #[arg(long, default_value_t = 10)]
        limit: usize,
        /// Include superseded entries
        #[arg(long)]
        superseded: bool,
    },
    /// Print all entries
    Export {
        /// Format
        #[arg(long, value_enum, default_value = "markdown")]
        format: ExportFormat,
    },
    /// List entries whose files changed since
    Drift,
    /// Propose merges of similar entries; an etag and --yes apply them
    Compact {
        /// Etag of the proposal
        #[arg(long, value_name = "ETAG", requires = "yes")]
        etag: Option<String>,
        /// Only merges into these entries [default: all]
        into: Vec<String>,
        /// Apply the change
        #[arg(long, requires = "etag")]
        yes: bool,
    },
}

/// A learning.
#[derive(Debug, Args)]
pub(crate) struct LearnArgs {
    /// When it applies
    #[arg(long, value_name = "TEXT", required_unless_present = "invariant")]
    pub(crate) context: Option<String>,
    /// What works
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["issue", "decision", "invariant"])]
    pub(crate) approach: Option<String>,
    /// Problem
    #[arg(long, value_name = "TEXT", requires = "resolution", conflicts_with_all = ["decision", "invariant"])]
    pub(crate) issue: Option<String>,
    /// What solved it
    #[arg(long, value_name = "TEXT", requires = "issue")]
    pub(crate) resolution: Option<String>,
    /// Decision
    #[arg(long, value_name = "TEXT", requires = "rationale", conflicts_with = "invariant")]
    pub(crate) decision: Option<String>,
    /// Reason
    #[arg(long, value_name = "TEXT", requires = "decision")]
    pub(crate) rationale: Option<String>,
    /// Invariant
    #[arg(long, value_name = "TEXT", conflicts_with = "context")]
    pub(crate) invariant: Option<String>,
    /// Command that ends with 0 if it holds
    #[arg(long, value_name = "COMMAND", requires = "invariant")]
    pub(crate) check: Option<String>,
    /// Related file or folder; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<String>,
    /// Related issue
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Expected etag of the file
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// Export format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Markdown, with a heading for each kind
    Markdown,
    /// One JSON object per line
    Jsonl,
    /// The stored file
    Json,
}

/// `helmdeck forge features`.
#[derive(Debug, Subcommand)]
pub(crate) enum FeaturesCommand {
    /// List features with their verified status
    List,
    /// Add a feature
    Add {
        /// Name
        name: String,
        /// Id [default: the next number]
        #[arg(long)]
        id: Option<String>,
        /// Test command; repeatable
        #[arg(long, value_name = "TEST")]
        test: Vec<String>,
        /// Step; repeatable
        #[arg(long, value_name = "TEXT")]
        step: Vec<String>,
        /// Category
        #[arg(long)]
        category: Option<String>,
        /// A person verifies it, instead of a test
        #[arg(long)]
        manual: bool,
    },
    /// Change a feature. Only `verify` can mark it as working
    Set(FeatureEdit),
    /// Run the tests of features and store the results; exit 1 if one fails
    Verify {
        /// Ids [default: the feature of the focus]
        ids: Vec<String>,
        /// All features that have tests
        #[arg(long, conflicts_with_all = ["ids", "stale"])]
        all: bool,
        /// Features that passed before and are untested on the current code
        #[arg(long, conflicts_with = "ids")]
        stale: bool,
    },
    /// Record that a person saw the feature work
    Manual {
        /// Id
        id: String,
        /// Artifact with the evidence
        #[arg(long, value_name = "TRIV")]
        evidence: String,
        /// Name of the person
        #[arg(long, value_name = "NAME")]
        by: String,
    },
    /// Print the feature to work on next
    Next,
    /// Re-test some features that passed before
    Probe {
        /// Maximum number
        #[arg(long)]
        count: Option<usize>,
    },
    /// List changes of the contract and weakened tests
    Audit {
        /// Since this checkpoint [default: the newest]
        #[arg(long, value_name = "NAME")]
        since: Option<String>,
    },
    /// Remove a feature from the list
    Remove {
        /// Id
        id: String,
        /// Reason for the change of the contract
        #[arg(long, value_name = "WHY")]
        amend_contract: Option<String>,
    },
}

/// `helmdeck forge features set`.
#[derive(Debug, Args)]
pub(crate) struct FeatureEdit {
    /// Id
    pub(crate) id: String,
    /// Status: `not_implemented`, `in_progress`, `failing`, `blocked` or `deferred`
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Reason
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// New name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// New tests, replacing the old ones
    #[arg(long, value_name = "TEST")]
    pub(crate) test: Vec<String>,
    /// New steps, replacing the old ones
    #[arg(long, value_name = "TEXT")]
    pub(crate) step: Vec<String>,
    /// What blocks it: ids, or a text
    #[arg(long, value_name = "ID")]
    pub(crate) blocked_by: Vec<String>,
    /// Reason for the change of the contract
    #[arg(long, value_name = "WHY")]
    pub(crate) amend_contract: Option<String>,
    /// Expected etag of the file
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// `helmdeck forge focus`.
#[derive(Debug, Subcommand)]
pub(crate) enum FocusCommand {
    /// Show the focus
    Show,
    /// Set the focus
    Set(FocusArgs),
    /// Clear the focus
    Clear {
        /// Reason
        #[arg(long)]
        reason: Option<String>,
    },
}

/// `helmdeck forge focus set`.
#[derive(Debug, Args)]
pub(crate) struct FocusArgs {
    /// Task
    pub(crate) task: Option<String>,
    /// Issue
    #[arg(long, value_name = "KEY")]
    pub(crate) issue: Option<String>,
    /// Feature
    #[arg(long, value_name = "ID")]
    pub(crate) feature: Option<String>,
    /// Related file; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<String>,
    /// Phase: PLAN, BUILD, VERIFY, REVIEW, BLOCKED, DONE
    #[arg(long)]
    pub(crate) phase: Option<String>,
    /// Blocker; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) blocker: Vec<String>,
    /// Skill in use
    #[arg(long, value_name = "NAME")]
    pub(crate) skill: Option<String>,
    /// Reason
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Expected etag of the focus
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// Kind of artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArtifactKind {
    /// Generated code
    Code,
    /// Documentation
    Docs,
    /// Reports and evidence
    Reports,
}

/// `helmdeck forge artifact`.
#[derive(Debug, Subcommand)]
pub(crate) enum ForgeArtifactCommand {
    /// Store a file
    Put {
        /// File
        file: PathBuf,
        /// Name
        #[arg(long, value_enum)]
        kind: ArtifactKind,
        /// Name, as slug.ext [default: the name of the file]
        #[arg(long)]
        name: Option<String>,
        /// Source artifact; repeatable
        #[arg(long, value_name = "TRIV")]
        from: Vec<String>,
    },
    /// Show an artifact
    Get {
        /// Triv, the start of it, or name
        name: String,
    },
    /// List artifacts
    List {
        /// Only this kind
        #[arg(long, value_enum)]
        kind: Option<ArtifactKind>,
        /// Maximum number
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Verify that artifacts are unchanged; exit 1 if one is not
    Verify {
        /// Artifact [default: all]
        name: Option<String>,
    },
    /// List unused artifacts; --yes removes them
    Gc {
        /// Only artifacts older than this
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        older: Option<Duration>,
        /// Apply the change
        #[arg(long)]
        yes: bool,
    },
    /// Rebuild the index from the files
    Rebuild,
    /// Store a report of the current state
    Snapshot,
}

/// `helmdeck forge skill`.
#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// List skills with their descriptions
    List,
    /// Print the instructions of a skill
    Show {
        /// Name of the skill
        name: String,
    },
    /// Print a file of a skill
    Resource {
        /// Name of the skill
        name: String,
        /// File
        path: String,
    },
    /// Show which skills fit a task, and why
    Match(SkillQuery),
    /// Show the order of chained skills
    Plan {
        /// Names of the skills
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Record that a skill is in use
    Activate {
        /// Name of the skill
        name: String,
    },
    /// Show how often skills matched, and how often they were used
    Stats,
    /// Import an Agent Skill: a folder with SKILL.md, scripts and references, or a SKILL.md alone
    Import {
        /// Folder or file
        file: PathBuf,
    },
    /// Print a skill as SKILL.md
    Export {
        /// Name of the skill
        name: String,
        /// New folder for the skill with all its files [default: print the `SKILL.md` alone]
        folder: Option<PathBuf>,
    },
    /// Import the triggers of a SKILL.md
    SyncTriggers {
        /// The skill
        name: String,
        /// File
        file: PathBuf,
    },
}

/// Task to match skills against.
#[derive(Debug, Args)]
pub(crate) struct SkillQuery {
    /// Task
    pub(crate) text: Vec<String>,
    /// Related file; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<String>,
    /// Label of the issue; repeatable
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
}
