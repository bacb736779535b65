//! Command line of `helmdeck forge`.

mod git;
mod issue;
mod linear;
mod memory;
mod session;
mod tried;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

pub(crate) use git::{CheckpointCommand, CommitArgs, HookCommand, HookKind, RecoverCommand, RollbackMode};
pub(crate) use issue::{
    BranchArgs, DoneWorkArgs, FormCommand, FormValues, IssueCommand, IssueEdit, IssueFields, StartWorkArgs,
};
pub(crate) use linear::{LinearCommand, ResolveArgs};
pub(crate) use memory::{
    ArtifactKind, ExportFormat, FeatureEdit, FeaturesCommand, FocusArgs, FocusCommand, ForgeArtifactCommand,
    KnowledgeCommand, LearnArgs, SkillCommand, SkillQuery,
};
pub(crate) use session::{EndArgs, ForgeSessionCommand, StartArgs};
pub(crate) use tried::tip;

/// `helmdeck forge`.
#[derive(Debug, Args)]
pub(crate) struct ForgeArgs {
    #[command(flatten)]
    pub(crate) common: ForgeCommon,
    #[command(subcommand)]
    pub(crate) command: ForgeCommand,
}

/// Options of every `helmdeck forge` command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every forge command")]
pub(crate) struct ForgeCommon {
    /// A folder in the project [default: the current folder]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) project: Option<PathBuf>,
    /// Work session [default: `HELMDECK_FORGE_SESSION`, else the active one in this work tree]
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Name of the agent [default: `HELMDECK_FORGE_AGENT`, else Forge]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Allow findings of this leak scanner rule; each use is logged
    #[arg(long, global = true, value_name = "RULE")]
    pub(crate) allow_secret: Vec<String>,
}

/// Commands of `helmdeck forge`.
#[derive(Debug, Subcommand)]
pub(crate) enum ForgeCommand {
    /// Create .forge/ in a project; existing files are kept
    ///
    /// With --agent claude, codex, cursor or gemini, it sets up that agent: lines in its instruction file, and hooks in
    /// its settings.
    Init {
        /// Import files of other tools: feature lists, progress, issues, notes
        #[arg(long)]
        adopt: bool,
        /// Allow a project outside a git repository
        #[arg(long)]
        no_git: bool,
        /// Create .forge/ here instead of at the root of the repository
        #[arg(long)]
        here: bool,
        /// Set commit.cleanup=scissors, so that git keeps headings in edited commit messages
        #[arg(long)]
        scissors: bool,
        /// Configure the git merge driver for the JSON files of .forge/
        #[arg(long)]
        merge_driver: bool,
        /// With --agent: take its lines and hooks away again
        #[arg(long)]
        remove: bool,
        /// With --agent: set it up without asking
        #[arg(long)]
        yes: bool,
    },
    /// Start work: session, focus and branch; on an issue, a feature, or a new issue with this title
    #[command(alias = "begin")]
    Start(StartWorkArgs),
    /// Finish work: checkpoint, issue closed, session ended
    #[command(alias = "finish")]
    Done(DoneWorkArgs),
    /// Show where the work stands, and what to run next
    Status,
    /// List the issues that can be started
    Ready,
    /// Run the tests of the focus's feature and store the results; exit 1 if one fails
    Verify {
        /// Ids of features [default: those of the focus]
        ids: Vec<String>,
        /// All features that have tests
        #[arg(long, conflicts_with_all = ["ids", "stale"])]
        all: bool,
        /// Features that passed before and are untested on the current code
        #[arg(long, conflicts_with = "ids")]
        stale: bool,
    },
    /// Remember a text, as "when it applies: what works"
    #[command(aliases = ["learn", "note"])]
    Remember {
        /// Text
        #[arg(required = true)]
        text: Vec<String>,
    },
    /// Add, list, change, start and close issues
    #[command(subcommand, alias = "issues")]
    Issue(IssueCommand),
    /// List, show, fill and check the forms of new issues
    #[command(subcommand, alias = "forms")]
    Form(FormCommand),
    /// Synchronise issues with Linear or GitHub
    #[command(subcommand, visible_aliases = ["tracker", "github"])]
    Linear(LinearCommand),
    /// Check `.forge/` for missing, unknown or damaged files
    Doctor {
        /// Create missing files
        #[arg(long)]
        fix: bool,
    },
    /// Show the commands of this clone's files and trust them; tests, checks and scripts run only if trusted
    Trust {
        /// Show the commands without trusting them
        #[arg(long)]
        show: bool,
        /// Revoke the trust in this clone
        #[arg(long, conflicts_with_all = ["show", "yes"])]
        revoke: bool,
        /// Skip the confirmation prompt
        #[arg(long, conflicts_with = "show")]
        yes: bool,
    },
    /// Repair a damaged file. Shows the candidates; --yes applies one
    Repair {
        /// File to repair [default: list all damaged files]
        path: Option<String>,
        /// Apply the repair
        #[arg(long)]
        yes: bool,
        /// Candidate: tag, merge, `last_good`, git, salvage or skeleton [default: the first available]
        #[arg(long, value_name = "SOURCE")]
        from: Option<String>,
    },
    /// Add, confirm, supersede, search and export knowledge
    #[command(subcommand)]
    Knowledge(KnowledgeCommand),
    /// Manage features and run their tests
    #[command(subcommand, alias = "feature")]
    Features(FeaturesCommand),
    /// Run the checks of the invariants
    Invariants,
    /// Find paths in architecture.md that no longer exist
    Architecture,
    /// Show, set or clear the focus
    #[command(subcommand)]
    Focus(FocusCommand),
    /// Manage project artifacts
    #[command(subcommand, alias = "artifacts")]
    Artifact(ForgeArtifactCommand),
    /// List, show, match and chain skills
    #[command(subcommand, alias = "skills")]
    Skill(SkillCommand),
    /// Show the size of the scratch folder, or clean it
    Scratch {
        /// Remove files older than this, like 7d
        #[arg(long, value_name = "DURATION", value_parser = helmdeck_core::duration::parse_duration)]
        clean_older: Option<std::time::Duration>,
        /// List what would be removed without removing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Commit with the project's message format: `commit "what was done"`, or the long form with -m
    Commit(CommitArgs),
    /// Check commit messages; exit 1 if one breaks a rule
    LintCommits {
        /// Range of commits, like main..HEAD [default: the commits of this branch that its base lacks]
        range: Option<String>,
    },
    /// Install, remove and run the git hooks for commit messages
    #[command(subcommand)]
    Hook(HookCommand),
    /// Create, list and verify checkpoints
    #[command(subcommand, alias = "checkpoints")]
    Checkpoint(CheckpointCommand),
    /// Assess damage, roll back, or resume paused work
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// Start, log, end and run work sessions
    #[command(subcommand)]
    Session(ForgeSessionCommand),
    /// Print the briefing for a new session
    Prime {
        /// Maximum size of the briefing, in estimated tokens
        #[arg(long, value_name = "TOKENS")]
        budget: Option<usize>,
    },
    /// Show the health of the project
    Health {
        /// Check every two seconds, print changes, and record them in .forge/.local/health.jsonl
        #[arg(long)]
        watch: bool,
        /// Exit with 11 for yellow and 12 for red
        #[arg(long)]
        exit_code: bool,
    },
    /// Show, replay and send events
    #[command(subcommand)]
    Events(EventsCommand),
    /// Run as git's merge driver for a file of .forge/: %O %A %B %P
    MergeDriver {
        /// Common ancestor (%O)
        base: PathBuf,
        /// Our version; receives the result (%A)
        ours: PathBuf,
        /// Their version (%B)
        theirs: PathBuf,
        /// Path of the file in the repository (%P)
        path: String,
    },
}

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentName {
    /// Claude Code: CLAUDE.md and .claude/settings.json
    Claude,
    /// Codex: AGENTS.md and .codex/hooks.json
    Codex,
    /// Cursor: AGENTS.md and .cursor/hooks.json
    Cursor,
    /// Gemini CLI: GEMINI.md and .gemini/settings.json
    Gemini,
}

/// An event at which a hook of an agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentEvent {
    /// Give the briefing
    Start,
    /// Note in the progress that the agent compacts its context
    Compact,
    /// End the work session
    Stop,
}

/// `helmdeck forge events`.
#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// Print the last events
    Tail {
        /// Number of events
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: usize,
    },
    /// Print events from the journal, oldest first
    Replay {
        /// Only events after this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Only events since this time (RFC 3339)
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Only events of this session
        #[arg(long, value_name = "ID")]
        of: Option<String>,
        /// Read from the event server, with the events of all work trees and clones, instead of the local journal
        #[arg(long)]
        server: bool,
    },
    /// Show how many events wait for the event server
    Status,
    /// Send waiting events now; commands that emit events also try
    Send,
}
