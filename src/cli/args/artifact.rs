//! Command line of `helmdeck artifact`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use helmdeck_core::PackName;

/// `helmdeck artifact`.
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// List unexpired files, newest first
    List(ArtifactListArgs),
    /// Write a file of any owner to stdout, or to a file
    Get(ArtifactGetArgs),
    /// Delete files of any owner before they expire
    Rm {
        /// Keys, as shown by `list`
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Check the artifact storage: write, read back and delete a small object
    Check,
}

/// `helmdeck artifact list`.
#[derive(Debug, Args)]
pub(crate) struct ArtifactListArgs {
    /// Only files of this pack
    #[arg(long, value_parser = PackName::new)]
    pub(crate) pack: Option<PackName>,
    /// Only files of this user [default: the local caller]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Tenant of the user
    #[arg(long, requires = "user", default_value = "local")]
    pub(crate) tenant: String,
    /// Files of all owners, grouped by owner
    #[arg(long, conflicts_with = "user")]
    pub(crate) all: bool,
    /// Maximum number of files
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: usize,
    /// Continue after the previous page: its `next` from --json
    #[arg(long, value_name = "NEXT")]
    pub(crate) after: Option<String>,
}

/// `helmdeck artifact get`.
#[derive(Debug, Args)]
pub(crate) struct ArtifactGetArgs {
    /// Key, as shown by a call's outcome or by `list`
    pub(crate) key: String,
    /// Output file; - for stdout
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
}
