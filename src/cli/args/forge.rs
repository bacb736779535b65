//! Command line of `helmdeck forge`.

mod git;
mod issue;
mod memory;
mod session;
mod tracker;
mod tried;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

pub(crate) use git::{
    CheckpointCommand, CommitArgs, HookCommand, HookEvent, HookKind, RecoverCommand,
};
pub(crate) use issue::{DoneWorkArgs, FormCommand, FormValues, IssueCommand, StartWorkArgs};
pub(crate) use memory::{
    ArtifactKind, FeatureEdit, FeaturesCommand, FocusArgs, FocusCommand, ForgeArtifactCommand,
    KnowledgeCommand, LearnArgs, SkillCommand, SkillQuery,
};
pub(crate) use session::{EndArgs, ForgeSessionCommand, StartArgs};
pub(crate) use tracker::{ResolveArgs, SyncArgs, TrackerCommand};
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
    /// With --agent claude, codex, cursor or gemini, it sets up that agent: lines in its
    /// instruction file, and hooks in its settings.
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
    /// Start work: session, focus and branch; on an issue, a feature, or a new issue with this
    /// title
    #[command(alias = "begin")]
    Start(StartWorkArgs),
    /// Finish work: checkpoint, issue closed, session ended
    #[command(alias = "finish")]
    Done(DoneWorkArgs),
    /// Show where the work stands, and what to run next
    Status,
    /// List the issues that can be started
    Ready,
    /// Run the tests of features and the checks of invariants, and store the results; exit 1 if one
    /// fails
    Verify {
        /// Ids of features; invariants are not checked then [default: those of the focus]
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
    /// Add, list, change and close issues; `forge start KEY` starts one
    #[command(subcommand, alias = "issues")]
    Issue(Box<IssueCommand>),
    /// List the forms of new issues, and fill one
    #[command(subcommand, alias = "forms")]
    Form(FormCommand),
    /// Synchronise issues with Linear or GitHub
    #[command(subcommand)]
    Tracker(TrackerCommand),
    /// Check `.forge/` for missing, unknown or damaged files
    Doctor {
        /// Create missing files
        #[arg(long)]
        fix: bool,
    },
    /// Show the commands of this clone's files and trust them; tests, checks and scripts run only
    /// if trusted
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
        /// Candidate: tag, merge, `last_good`, git, salvage or skeleton [default: the first
        /// available]
        #[arg(long, value_name = "SOURCE")]
        from: Option<String>,
    },
    /// Add, replace and search knowledge
    #[command(subcommand)]
    Knowledge(KnowledgeCommand),
    /// List, add and change features; `forge verify` runs their tests
    #[command(subcommand, alias = "feature")]
    Features(FeaturesCommand),
    /// Set or clear the focus; `forge status` shows it
    #[command(subcommand)]
    Focus(FocusCommand),
    /// Manage project artifacts
    #[command(subcommand, alias = "artifacts")]
    Artifact(ForgeArtifactCommand),
    /// List, show and match skills
    #[command(subcommand, alias = "skills")]
    Skill(SkillCommand),
    /// Commit with the project's message format: `commit "what was done"`, or the long form with -m
    Commit(CommitArgs),
    /// Install, remove and run hooks of git and of coding agents
    #[command(subcommand)]
    Hook(HookCommand),
    /// Create, list and verify checkpoints
    #[command(subcommand, alias = "checkpoints")]
    Checkpoint(CheckpointCommand),
    /// Assess damage, roll back, or resume paused work
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// Start, log and end work sessions; `forge status` shows them
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
    /// Print events, oldest first
    Events {
        /// Only the last events, this many
        #[arg(short = 'n', long, value_name = "NUMBER")]
        lines: Option<usize>,
        /// Only events after this number
        #[arg(long, default_value_t = 0, value_name = "NUMBER")]
        after: u64,
        /// Only events since this time (RFC 3339)
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Send the events that wait, and read from the event server: events of all work trees and
        /// clones
        #[arg(long)]
        server: bool,
    },
    /// Print features.json and knowledge.json as RFC-9060 has them
    Export {
        /// Write the two files into this folder instead
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
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
