//! Command line of `helmdeck forge commit`, `checkpoint`, `recover` and `hook`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

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
    /// State that the change builds on [default: the last good checkpoint, else the first parent]
    #[arg(long, value_name = "COMMIT")]
    pub(crate) parent: Option<String>,
    /// Close the issue in the tracker when the commit is merged: adds `Closes: #12`
    #[arg(long, conflicts_with = "session_commit")]
    pub(crate) closes: bool,
}

/// `helmdeck forge hook`.
#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Install a hook of git; an existing hook runs first
    Install {
        /// Hook
        #[arg(value_enum)]
        hook: HookKind,
        /// Remove it, and restore the one before it
        #[arg(long)]
        remove: bool,
    },
    /// Do the work of a hook; git and coding agents run this
    Run {
        /// Event
        #[arg(value_enum)]
        event: HookEvent,
        /// What git gives the hook: the file of the message, or the index; or the name of the agent
        #[arg(value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
}

/// What a hook runs at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookEvent {
    /// Check a commit message
    CommitMsg,
    /// Add the origin of a commit to its message
    PrepareCommitMsg,
    /// Add the memory to a commit
    PreCommit,
    /// Give a coding agent the briefing
    AgentStart,
    /// Note in the progress that a coding agent compacts its context
    AgentCompact,
    /// End the work session of a coding agent
    AgentStop,
}

/// A hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookKind {
    /// Check a message before the commit
    CommitMsg,
    /// Prepare a message before it is edited
    PrepareCommitMsg,
    /// Add the memory to each commit
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
}

/// `helmdeck forge recover`.
#[derive(Debug, Subcommand)]
pub(crate) enum RecoverCommand {
    /// Assess the distance from the last checkpoint, and propose a step
    Assess {
        /// Do not run the verify command
        #[arg(long)]
        no_verify: bool,
    },
    /// Roll back by a commit on this branch, if the assessment proposes it; no work is lost
    Apply {
        /// Checkpoint [default: the newest usable one]
        #[arg(long, value_name = "NAME")]
        checkpoint: Option<String>,
        /// Reason [default: what was measured]
        #[arg(long, value_name = "TEXT")]
        why: Option<String>,
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
}
