//! Command line of `helmdeck cache` and of the purge commands.

use clap::{Args, Subcommand};
use helmdeck_core::PackName;
use helmdeck_memory::Namespace;

use super::{CallArgs, parse_namespace};

/// `helmdeck cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show the parts of a call's cache key, and whether an answer is stored
    Explain(CallArgs),
    /// Count answers by status and pack (works without the key)
    Stats,
    /// List cached answers without their values (works without the key)
    Ls {
        /// Only answers of this pack
        #[arg(long, value_parser = PackName::new)]
        pack: Option<PackName>,
        /// Maximum number of entries
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Delete cached answers (works without the key)
    Purge(PurgeArgs),
    /// Show what the cache saved (works without the key)
    Savings,
}

/// Flags of the purge commands.
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Entries to delete.
    #[command(flatten)]
    pub(crate) which: Which,
    /// Skip the confirmation prompt
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Selector of the entries to delete: exactly one is required.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Cached answers of this pack
    #[arg(long, value_parser = PackName::new)]
    pub(crate) pack: Option<PackName>,
    /// Cached answers with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Entries of this caller: tenant/user (with its sessions) or tenant/user/session
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    pub(crate) namespace: Option<Namespace>,
    /// All entries of all callers
    #[arg(long)]
    pub(crate) all: bool,
}
