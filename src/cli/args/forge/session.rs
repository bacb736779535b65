//! The command line of `helmdeck forge session`.

use clap::{Args, Subcommand};

/// `helmdeck forge session`.
#[derive(Debug, Subcommand)]
pub(crate) enum ForgeSessionCommand {
    /// Begin a session, or go on with the one that lives; print what one needs to know
    Start(StartArgs),
    /// Note what was done
    Log {
        /// What, in one line
        text: String,
        /// What comes next
        #[arg(long, value_name = "TEXT")]
        next: Option<String>,
    },
    /// Keep what was learned: `--context`, and `--approach` or `--issue` with `--resolution`
    Learn(super::LearnArgs),
    /// End the session
    End(EndArgs),
    /// Run a command for the session: it lives as long as the command, whose exit and time are noted
    Run {
        /// The command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Say which sessions live here, and whether a checkpoint is advised
    Status,
}

/// `helmdeck forge session start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Work beside a session that lives, with a focus and a progress of your own
    #[arg(long)]
    pub(crate) join: bool,
    /// Give up a session that lives only by its lease
    #[arg(long, conflicts_with = "join")]
    pub(crate) take_over: bool,
    /// Run .forge/init.sh
    #[arg(long)]
    pub(crate) bootstrap: bool,
    /// Do not test again whether some features that worked still do
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// How long the brief may be, in estimated tokens
    #[arg(long, value_name = "TOKENS")]
    pub(crate) budget: Option<usize>,
}

/// `helmdeck forge session end`.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// What worked, as "context: approach"; may be given several times
    #[arg(long, value_name = "CONTEXT: APPROACH")]
    pub(crate) learned: Vec<String>,
    /// What comes next
    #[arg(long, value_name = "TEXT")]
    pub(crate) next: Option<String>,
    /// Why uncommitted code is left behind
    #[arg(long, value_name = "WHY")]
    pub(crate) leave_dirty: Option<String>,
    /// The issue under which the memory is committed
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}
