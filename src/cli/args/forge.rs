//! The command line of `helmdeck forge`.

mod git;
mod memory;
mod session;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use git::{CheckpointCommand, CommitArgs, HookCommand, HookKind, RecoverCommand, RollbackMode};
pub(crate) use memory::{
    ArtifactKind, ExportFormat, FeatureEdit, FeaturesCommand, FocusArgs, FocusCommand, ForgeArtifactCommand,
    KnowledgeCommand, LearnArgs, SkillCommand, SkillQuery,
};
pub(crate) use session::{EndArgs, ForgeSessionCommand, StartArgs};

/// `helmdeck forge`.
#[derive(Debug, Args)]
pub(crate) struct ForgeArgs {
    #[command(flatten)]
    pub(crate) common: ForgeCommon,
    #[command(subcommand)]
    pub(crate) command: ForgeCommand,
}

/// What every command of `helmdeck forge` takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every forge command")]
pub(crate) struct ForgeCommon {
    /// The project: a folder of it; the current one if absent
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) project: Option<PathBuf>,
    /// The session the work belongs to; else `HELMDECK_FORGE_SESSION`, else the one that lives in the work tree
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Who works; else `HELMDECK_FORGE_AGENT`, else Forge
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Let a finding of this rule of the scanner for secrets pass, and log that
    #[arg(long, global = true, value_name = "RULE")]
    pub(crate) allow_secret: Vec<String>,
}

/// `helmdeck forge`: the commands.
#[derive(Debug, Subcommand)]
pub(crate) enum ForgeCommand {
    /// Give a project a memory; what is there stays as it is
    Init {
        /// Take over what other tools left: feature lists, progress, issues, notes
        #[arg(long)]
        adopt: bool,
        /// The project lies in no repository of git
        #[arg(long)]
        no_git: bool,
        /// Here, not at the root of the repository
        #[arg(long)]
        here: bool,
        /// Set commit.cleanup=scissors, which keeps the headings of commit messages when they are edited
        #[arg(long)]
        scissors: bool,
        /// Set the merge driver of the memory's JSON files
        #[arg(long)]
        merge_driver: bool,
    },
    /// Look for what is missing, does not belong, or is damaged
    Doctor {
        /// Create what is missing
        #[arg(long)]
        fix: bool,
    },
    /// Show what this clone's files would run, and agree to it: tests, checks and scripts run only then
    Trust {
        /// Only show
        #[arg(long)]
        show: bool,
        /// Take back what was agreed to for this clone
        #[arg(long, conflicts_with_all = ["show", "yes"])]
        revoke: bool,
        /// Agree without being asked
        #[arg(long, conflicts_with = "show")]
        yes: bool,
    },
    /// Mend a damaged file: show what could take its place, and with --yes put it there
    Repair {
        /// The file; every damaged one is listed if absent
        path: Option<String>,
        /// Do it
        #[arg(long)]
        yes: bool,
        /// What takes its place: tag, merge, `last_good`, git, salvage or skeleton; the first that there is if absent
        #[arg(long, value_name = "SOURCE")]
        from: Option<String>,
    },
    /// What was learned: add, confirm, supersede, search, export
    #[command(subcommand)]
    Knowledge(KnowledgeCommand),
    /// The features, and which of them work
    #[command(subcommand)]
    Features(FeaturesCommand),
    /// Run the checks of what must always hold
    Invariants,
    /// Look for paths that architecture.md names and that are gone
    Architecture,
    /// What is being done now
    #[command(subcommand)]
    Focus(FocusCommand),
    /// What was produced
    #[command(subcommand)]
    Artifact(ForgeArtifactCommand),
    /// The skills: list, show, match, chain
    #[command(subcommand)]
    Skill(SkillCommand),
    /// Notes and drafts
    Scratch {
        /// Remove those older than this, like 7d; only say how much there is if absent
        #[arg(long, value_name = "DURATION", value_parser = helmdeck_core::duration::parse_duration)]
        clean_older: Option<std::time::Duration>,
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Commit by the protocol
    Commit(CommitArgs),
    /// Check the messages of commits; exit 1 if one breaks a rule
    LintCommits {
        /// The commits, like main..HEAD; what this branch has and its base has not if absent
        range: Option<String>,
    },
    /// The hooks of git that check and prepare messages
    #[command(subcommand)]
    Hook(HookCommand),
    /// States from which one may go on
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Find out how far work has strayed, roll back, end a pause
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// Begin, log, end and run sessions
    #[command(subcommand)]
    Session(ForgeSessionCommand),
    /// Print what whoever begins needs to know
    Prime {
        /// How long it may be, in estimated tokens
        #[arg(long, value_name = "TOKENS")]
        budget: Option<usize>,
    },
    /// Say how the memory is doing
    Health {
        /// Look again every two seconds, print when a colour changes, and keep the colours in .forge/.local/health.jsonl
        #[arg(long)]
        watch: bool,
        /// Exit with 11 for yellow and 12 for red
        #[arg(long)]
        exit_code: bool,
    },
    /// Read events again
    #[command(subcommand)]
    Events(EventsCommand),
    /// Merge a file of the memory, as git asks for it: %O %A %B %P
    MergeDriver {
        /// The file before both (%O)
        base: PathBuf,
        /// Ours, which takes the result (%A)
        ours: PathBuf,
        /// Theirs (%B)
        theirs: PathBuf,
        /// Its path in the repository (%P)
        path: String,
    },
}

/// `helmdeck forge events`.
#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// Print the last events
    Tail {
        /// How many
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: usize,
    },
    /// Print events from the journal, oldest first
    Replay {
        /// Only those after this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Only those of this time or later (RFC 3339)
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Only those of this session
        #[arg(long, value_name = "ID")]
        of: Option<String>,
        /// Those of this repository that the event server kept, from all its work trees and clones, instead of the journal
        #[arg(long)]
        server: bool,
    },
    /// Say how many wait for a server
    Status,
    /// Send those that wait for the server, now; each command that tells something tries it too
    Send,
}
