//! The command line of `helmdeck session`.

use std::time::Duration;

use clap::{Args, Subcommand};
use helmdeck_core::duration::parse_duration;

/// `helmdeck session`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions of this data folder, of every caller and process
    List,
    /// Run a command in a session of the local caller, in its sandbox
    Exec(SessionExecArgs),
    /// End a session with everything that runs in it, and remove its folder
    End {
        /// Its id
        id: String,
    },
}

/// `helmdeck session exec`.
#[derive(Debug, Args)]
pub(crate) struct SessionExecArgs {
    /// Its id
    pub(crate) id: String,
    /// The folder to start in, below the session's own
    #[arg(long, value_name = "FOLDER", default_value = "")]
    pub(crate) cwd: String,
    /// Kill the command after this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
    pub(crate) timeout: Duration,
    /// Hand what comes on stdin to the command
    #[arg(long)]
    pub(crate) stdin: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) argv: Vec<String>,
}
