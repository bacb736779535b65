//! The command line of `helmdeck artifact`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use helmdeck_core::PackName;

/// `helmdeck artifact`.
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// List files that have not ended, newest first
    List(ArtifactListArgs),
    /// Write a file to stdout, or to a file; whose it is does not matter
    Get(ArtifactGetArgs),
    /// Delete files before they end; whose they are does not matter
    Rm {
        /// Their keys, as the list shows them
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Write a small object to the place of the files, read it back and delete it
    Check,
}

/// `helmdeck artifact list`.
#[derive(Debug, Args)]
pub(crate) struct ArtifactListArgs {
    /// Only of this pack
    #[arg(long, value_parser = PackName::new)]
    pub(crate) pack: Option<PackName>,
    /// Those of this user, instead of those of the local caller
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// The tenant of the user
    #[arg(long, requires = "user", default_value = "local")]
    pub(crate) tenant: String,
    /// Those of everybody, owner by owner
    #[arg(long, conflicts_with = "user")]
    pub(crate) all: bool,
    /// The most files
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: usize,
    /// The `next` of the page before, as --json shows it
    #[arg(long, value_name = "NEXT")]
    pub(crate) after: Option<String>,
}

/// `helmdeck artifact get`.
#[derive(Debug, Args)]
pub(crate) struct ArtifactGetArgs {
    /// Its key, as an outcome or the list shows it
    pub(crate) key: String,
    /// Where to; - for stdout
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}
