//! Command line of `helmdeck forge knowledge`, `features`, `focus`, `artifact` and `skill`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `helmdeck forge knowledge`.
#[derive(Debug, Subcommand)]
pub(crate) enum KnowledgeCommand {
    /// Add an entry: --approach for what works, --issue for what does not, --decision or
    /// --invariant
    Add(Box<LearnArgs>),
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
    #[arg(
        long,
        value_name = "TEXT",
        requires = "rationale",
        conflicts_with = "invariant"
    )]
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
    /// Entry that it replaces, by its id or its first 6 characters; the old one is kept as
    /// superseded
    #[arg(long, value_name = "ID")]
    pub(crate) replaces: Option<String>,
    /// Expected etag of the file
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// `helmdeck forge features`.
#[derive(Debug, Subcommand)]
pub(crate) enum FeaturesCommand {
    /// List features with their verified status, and the one to work on next
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
        /// File or folder that it is about; repeatable [default: the packages of its tests]
        #[arg(long, value_name = "PATH")]
        path: Vec<String>,
        /// Step; repeatable
        #[arg(long, value_name = "TEXT")]
        step: Vec<String>,
        /// Category
        #[arg(long)]
        category: Option<String>,
    },
    /// Change or remove a feature. Only `verify` can mark it as working
    Set(FeatureEdit),
}

/// `helmdeck forge features set`.
#[derive(Debug, Args)]
pub(crate) struct FeatureEdit {
    /// Id
    pub(crate) id: String,
    /// Status: `not_implemented`, `in_progress`, `failing`, `blocked` or `deferred`
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Reason of the status, or of a change of what was agreed at the last checkpoint
    #[arg(long, value_name = "WHY")]
    pub(crate) reason: Option<String>,
    /// New name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// New tests, replacing the old ones
    #[arg(long, value_name = "TEST")]
    pub(crate) test: Vec<String>,
    /// New paths that it is about, replacing the old ones
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<String>,
    /// New steps, replacing the old ones
    #[arg(long, value_name = "TEXT")]
    pub(crate) step: Vec<String>,
    /// What blocks it: ids, or a text
    #[arg(long, value_name = "ID")]
    pub(crate) blocked_by: Vec<String>,
    /// Remove it from the list
    #[arg(long, conflicts_with_all = ["status", "name", "test", "path", "step", "blocked_by"])]
    pub(crate) remove: bool,
    /// Expected etag of the file
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// `helmdeck forge focus`.
#[derive(Debug, Subcommand)]
pub(crate) enum FocusCommand {
    /// Set the focus, or clear it
    Set(FocusArgs),
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
    /// Clear the focus
    #[arg(long, conflicts_with_all = ["task", "issue", "feature", "file", "phase", "blocker", "skill", "if_match"])]
    pub(crate) clear: bool,
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
}

/// `helmdeck forge skill`.
#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// List skills with their descriptions and problems
    List,
    /// Print the instructions of a skill, its order and its files
    Show {
        /// Name of the skill
        name: String,
    },
    /// Show which skills fit a task, and why
    Match(SkillQuery),
}

/// Task to match skills against.
#[derive(Debug, Args)]
pub(crate) struct SkillQuery {
    /// Task
    pub(crate) task: Vec<String>,
    /// Related file; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<String>,
    /// Label of the issue; repeatable
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
}
