//! Command line of `helmdeck forge session`.

use clap::{Args, Subcommand};

/// `helmdeck forge session`.
#[derive(Debug, Subcommand)]
pub(crate) enum ForgeSessionCommand {
    /// Start a session or resume the active one, and print the briefing
    Start(StartArgs),
    /// Log progress
    Log {
        /// Entry, on one line
        text: String,
        /// Next step
        #[arg(long, value_name = "TEXT")]
        next: Option<String>,
    },
    /// End the session
    End(EndArgs),
}

/// `helmdeck forge session start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Work beside an active session, with a separate focus and progress
    #[arg(long)]
    pub(crate) join: bool,
    /// End a session that only its lease keeps active
    #[arg(long, conflicts_with = "join")]
    pub(crate) take_over: bool,
    /// Run .forge/init.sh
    #[arg(long)]
    pub(crate) bootstrap: bool,
    /// Skip the re-test of features that passed before
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Maximum size of the briefing, in estimated tokens
    #[arg(long, value_name = "TOKENS")]
    pub(crate) budget: Option<usize>,
}

/// `helmdeck forge session end`.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// What worked, as "context: approach"; repeatable
    #[arg(long, value_name = "CONTEXT: APPROACH")]
    pub(crate) learned: Vec<String>,
    /// Next step
    #[arg(long, value_name = "TEXT")]
    pub(crate) next: Option<String>,
    /// Reason for leaving uncommitted code
    #[arg(long, value_name = "WHY")]
    pub(crate) leave_dirty: Option<String>,
    /// Issue for the commit of .forge/
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}
