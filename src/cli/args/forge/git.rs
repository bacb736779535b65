//! The command line of `helmdeck forge commit`, `checkpoint`, `recover` and `hook`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `helmdeck forge commit`.
#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// The files and folders to be committed; what is staged already is too
    pub(crate) paths: Vec<String>,
    /// The key of the issue
    #[arg(long, value_name = "KEY", required_unless_present = "session_commit")]
    pub(crate) key: Option<String>,
    /// It is what the session leaves behind, and belongs to no issue
    #[arg(long, conflicts_with = "key")]
    pub(crate) session_commit: bool,
    /// The subject, without the key
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) subject: String,
    /// What was changed; may be given several times
    #[arg(long, value_name = "TEXT", required = true)]
    pub(crate) what: Vec<String>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    /// What was learned; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) learned: Vec<String>,
    /// What must hold from now on; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) invariant: Vec<String>,
    /// The kind of change, for the conventional style: feat, fix, docs
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// The state it goes on from; the last good checkpoint or the first parent if absent
    #[arg(long, value_name = "COMMIT")]
    pub(crate) parent: Option<String>,
    /// Commit the memory too
    #[arg(long)]
    pub(crate) forge: bool,
}

/// `helmdeck forge hook`.
#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Install a hook; one that is there runs first
    Install {
        /// Which
        #[arg(value_enum)]
        hook: HookKind,
    },
    /// Take a hook out again; one that was there before is back
    Uninstall {
        /// Which
        #[arg(value_enum)]
        hook: HookKind,
    },
    /// Check a message, as the hook commit-msg does
    CommitMsg {
        /// The file with the message
        file: PathBuf,
    },
    /// Write where a commit comes from into its message, as the hook prepare-commit-msg does
    PrepareCommitMsg {
        /// The file with the message
        file: PathBuf,
        /// Where git has it from
        source: Option<String>,
        /// The commit, if it is an old one
        commit: Option<String>,
    },
}

/// A hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookKind {
    /// Checks a message before it is committed
    CommitMsg,
    /// Writes what is known into a message before it is edited
    PrepareCommitMsg,
}

/// `helmdeck forge checkpoint`.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Run the checks, and mark the commit if all succeed
    Create {
        /// The key of the issue
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// What works
        #[arg(short = 'm', long, value_name = "TEXT")]
        message: Option<String>,
        /// A command that must succeed, in place of the configured ones; may be given several times
        #[arg(long, value_name = "COMMAND")]
        verify: Vec<String>,
        /// An issue that is done with it; may be given several times
        #[arg(long, value_name = "KEY")]
        closes: Vec<String>,
        /// Push the tag, and nothing else
        #[arg(long)]
        push: bool,
        /// Where to
        #[arg(long, value_name = "NAME", requires = "push")]
        remote: Option<String>,
    },
    /// List the checkpoints, newest first
    List,
    /// Show one
    Show {
        /// Its name: SX9-123-v1
        name: String,
    },
    /// Check the tags and what they speak of, and write missing manifests anew
    Verify {
        /// Its name; all if absent
        name: Option<String>,
    },
    /// Drop all but the newest of each key
    Prune {
        /// How many of each key are kept
        #[arg(long, value_name = "NUMBER")]
        keep: Option<usize>,
        /// Do it; only say what would be dropped otherwise
        #[arg(long)]
        yes: bool,
    },
}

/// `helmdeck forge recover`.
#[derive(Debug, Subcommand)]
pub(crate) enum RecoverCommand {
    /// Measure how far the work is from the last checkpoint, and propose what to do
    Assess {
        /// Do not run the verify command: what is known from before counts
        #[arg(long)]
        no_verify: bool,
    },
    /// Roll back, if that is what the table says; nothing is lost by it
    Apply {
        /// How; as configured if absent
        #[arg(long, value_enum)]
        mode: Option<RollbackMode>,
        /// The checkpoint; the newest usable one if absent
        #[arg(long, value_name = "NAME")]
        checkpoint: Option<String>,
        /// Why; needed to roll back though the table does not say so
        #[arg(long, value_name = "TEXT")]
        why: Option<String>,
        /// Where a new work tree goes, if one is needed
        #[arg(long, value_name = "FOLDER")]
        worktree: Option<PathBuf>,
        /// Give up a rollback that was cut short and cannot go on; what it made stays
        #[arg(long, conflicts_with_all = ["mode", "checkpoint", "why", "worktree"])]
        give_up: bool,
    },
    /// Remove the work trees of rollbacks whose work is committed and merged; only list them without --yes
    Clean {
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Say why work may go on after a pause
    Ack {
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// The token that was shown; a terminal is asked without it
        #[arg(long, value_name = "TOKEN")]
        token: Option<String>,
    },
    /// Note that a try to mend it succeeded or failed
    Tried {
        /// Whether it succeeded
        #[arg(long)]
        passed: bool,
        /// What was tried
        what: String,
    },
}

/// How work is rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RollbackMode {
    /// A new branch at the checkpoint
    Branch,
    /// A commit on the same branch that restores
    Restore,
}
