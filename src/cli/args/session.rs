//! Command line of `helmdeck session`.

use std::time::Duration;

use clap::{Args, Subcommand};
use helmdeck_core::duration::parse_duration;

/// `helmdeck session`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions in this data folder, of all callers and processes
    List,
    /// Run a command in the sandbox of a session of the local caller
    Exec(SessionExecArgs),
    /// End a session: kill its processes and delete its folder
    End {
        /// Session id
        id: String,
    },
}

/// `helmdeck session exec`.
#[derive(Debug, Args)]
pub(crate) struct SessionExecArgs {
    /// Session id
    pub(crate) id: String,
    /// Working folder, relative to the session's folder
    #[arg(long, value_name = "FOLDER", default_value = "")]
    pub(crate) cwd: String,
    /// Kill the command after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
    pub(crate) timeout: Duration,
    /// Pass stdin to the command
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) argv: Vec<String>,
}
