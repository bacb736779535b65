//! The command line of `helmdeck forge knowledge`, `features`, `focus`, `artifact` and `skill`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_core::duration::parse_duration;

/// `helmdeck forge knowledge`.
#[derive(Debug, Subcommand)]
pub(crate) enum KnowledgeCommand {
    /// Keep something: with --approach what works, with --issue what does not, with --decision what was decided, with --invariant what
    /// must always hold
    Add(LearnArgs),
    /// Say that an entry still holds
    Confirm {
        /// Its id; the first 6 characters are enough
        id: String,
    },
    /// Put something in the place of an entry, which stays and says so
    Supersede {
        /// Its id; the first 6 characters are enough
        id: String,
        #[command(flatten)]
        by: LearnArgs,
    },
    /// Find entries by words
    Search {
        /// The words, or an id, or its first 6 characters; the newest entries without any
        words: Vec<String>,
        /// How many
        #[arg(long, default_value_t = 10)]
        limit: usize,
        /// Also those in whose place others are
        #[arg(long)]
        superseded: bool,
    },
    /// Print all of it
    Export {
        /// How
        #[arg(long, value_enum, default_value = "markdown")]
        format: ExportFormat,
    },
    /// List the entries whose files have changed since
    Drift,
    /// Propose to merge entries that say nearly the same; with an etag and --yes do it
    Compact {
        /// The etag of the proposal
        #[arg(long, value_name = "ETAG", requires = "yes")]
        etag: Option<String>,
        /// Only the merges into these entries; all if absent
        into: Vec<String>,
        /// Do it
        #[arg(long, requires = "etag")]
        yes: bool,
    },
}

/// Something that was learned.
#[derive(Debug, Args)]
pub(crate) struct LearnArgs {
    /// When it applies
    #[arg(long, value_name = "TEXT", required_unless_present = "invariant")]
    pub(crate) context: Option<String>,
    /// What works
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["issue", "decision", "invariant"])]
    pub(crate) approach: Option<String>,
    /// What went wrong
    #[arg(long, value_name = "TEXT", requires = "resolution", conflicts_with_all = ["decision", "invariant"])]
    pub(crate) issue: Option<String>,
    /// What helped
    #[arg(long, value_name = "TEXT", requires = "issue")]
    pub(crate) resolution: Option<String>,
    /// What was decided
    #[arg(long, value_name = "TEXT", requires = "rationale", conflicts_with = "invariant")]
    pub(crate) decision: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT", requires = "decision")]
    pub(crate) rationale: Option<String>,
    /// What must always hold
    #[arg(long, value_name = "TEXT", conflicts_with = "context")]
    pub(crate) invariant: Option<String>,
    /// A command that ends with 0 if it holds
    #[arg(long, value_name = "COMMAND", requires = "invariant")]
    pub(crate) check: Option<String>,
    /// A file or folder it is about; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<String>,
    /// The issue on which it was learned
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The etag the file must have
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// How knowledge is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A heading for each kind
    Markdown,
    /// A JSON object a line
    Jsonl,
    /// The file
    Json,
}

/// `helmdeck forge features`.
#[derive(Debug, Subcommand)]
pub(crate) enum FeaturesCommand {
    /// List the features, and how they really stand
    List,
    /// Add a feature
    Add {
        /// What it is
        name: String,
        /// Its id; the next number if absent
        #[arg(long)]
        id: Option<String>,
        /// A test that shows that it works; may be given several times
        #[arg(long, value_name = "TEST")]
        test: Vec<String>,
        /// A step of it; may be given several times
        #[arg(long, value_name = "TEXT")]
        step: Vec<String>,
        /// What kind it is
        #[arg(long)]
        category: Option<String>,
        /// A person says whether it works
        #[arg(long)]
        manual: bool,
    },
    /// Change a feature; that it works is shown by `verify`, never set
    Set(FeatureEdit),
    /// Run the tests of features, and keep what they said; exit 1 if one does not work
    Verify {
        /// Their ids; the feature of the focus if absent
        ids: Vec<String>,
        /// Every feature whose tests can be run
        #[arg(long, conflicts_with_all = ["ids", "stale"])]
        all: bool,
        /// Those that worked and nothing shows to work on the code as it is
        #[arg(long, conflicts_with = "ids")]
        stale: bool,
    },
    /// Say that a person has seen it work
    Manual {
        /// Its id
        id: String,
        /// The artifact that shows it
        #[arg(long, value_name = "TRIV")]
        evidence: String,
        /// Who has seen it
        #[arg(long, value_name = "NAME")]
        by: String,
    },
    /// Print the feature to work on next
    Next,
    /// Test some features again that worked
    Probe {
        /// How many
        #[arg(long)]
        count: Option<usize>,
    },
    /// List what was changed of the contract, and tests that were weakened
    Audit {
        /// Since this checkpoint; the newest if absent
        #[arg(long, value_name = "NAME")]
        since: Option<String>,
    },
    /// Remove a feature from the list
    Remove {
        /// Its id
        id: String,
        /// Why the contract is changed
        #[arg(long, value_name = "WHY")]
        amend_contract: Option<String>,
    },
}

/// `helmdeck forge features set`.
#[derive(Debug, Args)]
pub(crate) struct FeatureEdit {
    /// Its id
    pub(crate) id: String,
    /// Its status: `not_implemented`, `in_progress`, `failing`, `blocked` or `deferred`
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Why
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Another name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Its tests, in place of those it has
    #[arg(long, value_name = "TEST")]
    pub(crate) test: Vec<String>,
    /// Its steps, in place of those it has
    #[arg(long, value_name = "TEXT")]
    pub(crate) step: Vec<String>,
    /// What it waits for: ids, or a text
    #[arg(long, value_name = "ID")]
    pub(crate) blocked_by: Vec<String>,
    /// Why the contract is changed
    #[arg(long, value_name = "WHY")]
    pub(crate) amend_contract: Option<String>,
    /// The etag the file must have
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// `helmdeck forge focus`.
#[derive(Debug, Subcommand)]
pub(crate) enum FocusCommand {
    /// Say what is being done
    Show,
    /// Say what is being done from now on
    Set(FocusArgs),
    /// Say that nothing is being done
    Clear {
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
}

/// `helmdeck forge focus set`.
#[derive(Debug, Args)]
pub(crate) struct FocusArgs {
    /// What is to be done
    pub(crate) task: Option<String>,
    /// The issue it belongs to
    #[arg(long, value_name = "KEY")]
    pub(crate) issue: Option<String>,
    /// The feature it is about
    #[arg(long, value_name = "ID")]
    pub(crate) feature: Option<String>,
    /// A file it is about; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<String>,
    /// How far it is: PLAN, BUILD, VERIFY, REVIEW, BLOCKED, DONE
    #[arg(long)]
    pub(crate) phase: Option<String>,
    /// What it waits for; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) blocker: Vec<String>,
    /// The skill that is followed
    #[arg(long, value_name = "NAME")]
    pub(crate) skill: Option<String>,
    /// Why
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// The etag it must have
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

/// A kind of artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArtifactKind {
    /// Code that was generated
    Code,
    /// Documentation
    Docs,
    /// Reports and evidence
    Reports,
}

/// `helmdeck forge artifact`.
#[derive(Debug, Subcommand)]
pub(crate) enum ForgeArtifactCommand {
    /// Keep a file
    Put {
        /// The file
        file: PathBuf,
        /// What it is
        #[arg(long, value_enum)]
        kind: ArtifactKind,
        /// Its name: slug.ext; that of the file if absent
        #[arg(long)]
        name: Option<String>,
        /// An artifact it was made from; may be given several times
        #[arg(long, value_name = "TRIV")]
        from: Vec<String>,
    },
    /// Say what is known of one
    Get {
        /// Its triv, the beginning of it, or its name
        name: String,
    },
    /// List them
    List {
        /// Only of this kind
        #[arg(long, value_enum)]
        kind: Option<ArtifactKind>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Check that they are what they were; exit 1 if one is not
    Verify {
        /// Which; all if absent
        name: Option<String>,
    },
    /// Say which nobody needs any more; with --yes remove them
    Gc {
        /// Only those older than this
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        older: Option<Duration>,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Write the index anew from the files
    Rebuild,
    /// Keep what is known right now as a report
    Snapshot,
}

/// `helmdeck forge skill`.
#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// List the skills: name and description
    List,
    /// Print the instructions of one
    Show {
        /// Its name
        name: String,
    },
    /// Print one of its files
    Resource {
        /// Its name
        name: String,
        /// The file
        path: String,
    },
    /// Say which skills fit a task, and why
    Match(SkillQuery),
    /// Say in which order skills that are chained run
    Plan {
        /// Their names
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Note that a skill is followed
    Activate {
        /// Its name
        name: String,
    },
    /// Say how often skills fired, and how often they were followed
    Stats,
    /// Import an Agent Skill: a folder with SKILL.md, scripts and references, or a SKILL.md alone
    Import {
        /// The folder or the file
        file: PathBuf,
    },
    /// Print a skill as SKILL.md
    Export {
        /// Its name
        name: String,
    },
    /// Take over the triggers of a SKILL.md
    SyncTriggers {
        /// The skill
        name: String,
        /// The file
        file: PathBuf,
    },
}

/// What skills are to fit.
#[derive(Debug, Args)]
pub(crate) struct SkillQuery {
    /// The task
    pub(crate) text: Vec<String>,
    /// A file it is about; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<String>,
    /// A label of its issue; may be given several times
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
}
