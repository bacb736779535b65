//! Command line of `helmdeck system`.

use clap::{Args, Subcommand};

/// `helmdeck system`.
#[derive(Debug, Subcommand)]
pub(crate) enum SystemCommand {
    /// Copy tokens, jobs, credentials and counters into another database, and compare both
    #[command(
        after_help = "Stop all servers first. The target must be empty, or hold part of the same copy: a copy that was stopped is\n\
        simply run again. The source stays as it is. Then set system.url, or memory.url, to the target.\n\n\
        Examples:\n  \
        helmdeck system move --from sqlite:/var/lib/helmdeck/helmdeck.db\n  \
        helmdeck system move --to postgres://helmdeck@db.example/helmdeck\n  \
        helmdeck system move --to sqlite:/var/lib/helmdeck/helmdeck.db"
    )]
    Move(SystemMoveArgs),
}

/// `helmdeck system move`.
#[derive(Debug, Args)]
pub(crate) struct SystemMoveArgs {
    /// URL of the source [default: the system database of the settings]
    #[arg(long, value_name = "URL", required_unless_present = "to")]
    pub(crate) from: Option<String>,
    /// URL of the target [default: the system database of the settings]
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
}
