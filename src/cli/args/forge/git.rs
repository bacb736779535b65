//! Command line of `helmdeck forge commit`, `checkpoint`, `recover` and `hook`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{AgentEvent, AgentName};

/// `helmdeck forge commit`.
#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// What was done, then files; with -m only files [default: what is staged, else what changed]
    #[arg(value_name = "WHAT|PATH")]
    pub(crate) paths: Vec<String>,
    /// Key of the issue [default: that of the focus, else of the branch]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Commit the rest of a session's work, without an issue
    #[arg(long, conflicts_with = "key")]
    pub(crate) session_commit: bool,
    /// Subject, without the key: only the named files and what is staged are committed
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) subject: Option<String>,
    /// Change; repeatable [default: the subject]
    #[arg(long, value_name = "TEXT")]
    pub(crate) what: Vec<String>,
    /// Reason [default: asked at a terminal, else the title of the issue]
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
    /// Learning; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) learned: Vec<String>,
    /// New invariant; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) invariant: Vec<String>,
    /// Type of change in the conventional style: feat, fix, docs
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// State that the change builds on [default: the last good checkpoint, else the first parent]
    #[arg(long, value_name = "COMMIT")]
    pub(crate) parent: Option<String>,
    /// Close the issue in the tracker when the commit is merged: adds `Closes: #12`
    #[arg(long, conflicts_with = "session_commit")]
    pub(crate) closes: bool,
    /// Commit .forge/ too
    #[arg(long)]
    pub(crate) forge: bool,
}

/// `helmdeck forge hook`.
#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Install a hook; an existing hook runs first
    Install {
        /// Hook
        #[arg(value_enum)]
        hook: HookKind,
    },
    /// Remove a hook and restore the one before it
    Uninstall {
        /// Hook
        #[arg(value_enum)]
        hook: HookKind,
    },
    /// Check a commit message, as the hook commit-msg does
    CommitMsg {
        /// File with the message
        file: PathBuf,
    },
    /// Answer a hook of a coding agent: the briefing, an entry in the progress, or the end of the session
    Agent {
        /// Event
        event: AgentEvent,
        /// Agent
        #[arg(value_name = "AGENT")]
        tool: AgentName,
    },
    /// Add the origin of a commit to its message, as the hook prepare-commit-msg does
    PrepareCommitMsg {
        /// File with the message
        file: PathBuf,
        /// Source of the message, as git names it
        source: Option<String>,
        /// Commit, when an old one is amended or reused
        commit: Option<String>,
    },
    /// Add the memory to a commit, as the hook pre-commit does
    PreCommit {
        /// Index of the commit, as git names it
        index: Option<String>,
    },
}

/// A hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookKind {
    /// Check a message before the commit
    CommitMsg,
    /// Prepare a message before it is edited
    PrepareCommitMsg,
    /// Add the memory to each commit, with `[git] commits = "with-work"`
    PreCommit,
}

/// `helmdeck forge checkpoint`.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Run the checks, and create a checkpoint if all pass
    Create {
        /// Key of the issue
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Title
        #[arg(short = 'm', long, value_name = "TEXT")]
        message: Option<String>,
        /// Command that must succeed, instead of the configured ones; repeatable
        #[arg(long, value_name = "COMMAND")]
        verify: Vec<String>,
        /// Issue that it completes, and closes; repeatable
        #[arg(long, value_name = "KEY")]
        closes: Vec<String>,
        /// Close it although a criterion is open, for this reason
        #[arg(long, value_name = "WHY", requires = "closes")]
        anyway: Option<String>,
        /// Push the tag only
        #[arg(long)]
        push: bool,
        /// Remote to push to
        #[arg(long, value_name = "NAME", requires = "push")]
        remote: Option<String>,
    },
    /// List the checkpoints, newest first
    List,
    /// Show a checkpoint
    Show {
        /// Name, like SX9-123-v1
        name: String,
    },
    /// Verify tags and their commits, and rewrite missing manifests
    Verify {
        /// Name [default: all]
        name: Option<String>,
    },
    /// Delete all but the newest checkpoints of each key
    Prune {
        /// Number to keep for each key
        #[arg(long, value_name = "NUMBER")]
        keep: Option<usize>,
        /// Delete them; without it they are only listed
        #[arg(long)]
        yes: bool,
    },
}

/// `helmdeck forge recover`.
#[derive(Debug, Subcommand)]
pub(crate) enum RecoverCommand {
    /// Assess the distance from the last checkpoint, and propose a step
    Assess {
        /// Use the last result instead of running the verify command
        #[arg(long)]
        no_verify: bool,
    },
    /// Roll back, if the assessment proposes it; no work is lost
    Apply {
        /// Mode [default: as configured]
        #[arg(long, value_enum)]
        mode: Option<RollbackMode>,
        /// Checkpoint [default: the newest usable one]
        #[arg(long, value_name = "NAME")]
        checkpoint: Option<String>,
        /// Reason; required to roll back against the assessment
        #[arg(long, value_name = "TEXT")]
        why: Option<String>,
        /// Folder for a new work tree, if one is needed
        #[arg(long, value_name = "FOLDER")]
        worktree: Option<PathBuf>,
        /// Abandon an interrupted rollback that cannot resume; what it created stays
        #[arg(long, conflicts_with_all = ["mode", "checkpoint", "why", "worktree"])]
        give_up: bool,
    },
    /// Remove the work trees of rollbacks whose work is merged; without --yes they are only listed
    Clean {
        /// Remove them
        #[arg(long)]
        yes: bool,
    },
    /// Acknowledge a pause, so that work can resume
    Ack {
        /// Reason
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Token that was shown [default: ask on the terminal]
        #[arg(long, value_name = "TOKEN")]
        token: Option<String>,
    },
    /// Record whether an attempt to repair the work succeeded
    Tried {
        /// Result
        #[arg(long)]
        passed: bool,
        /// What was tried
        what: String,
    },
}

/// Rollback mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RollbackMode {
    /// A new branch at the checkpoint
    Branch,
    /// A restoring commit on the same branch
    Restore,
}
