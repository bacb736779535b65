//! The command line of `helmdeck cache`, and of what removes entries.

use clap::{Args, Subcommand};
use helmdeck_core::PackName;
use helmdeck_memory::Namespace;

use super::{CallArgs, parse_namespace};

/// `helmdeck cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Say what a call's key is made of, and whether there is an answer for it
    Explain(CallArgs),
    /// Count answers by status and pack (works without the key)
    Stats,
    /// List cached answers without their values (works without the key)
    Ls {
        /// Only of this pack
        #[arg(long, value_parser = PackName::new)]
        pack: Option<PackName>,
        /// The most entries
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Drop cached answers (works without the key)
    Purge(PurgeArgs),
    /// Say what the cache saved (works without the key)
    Savings,
}

/// Which entries to remove.
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Which.
    #[command(flatten)]
    pub(crate) which: Which,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Exactly one choice of entries.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Cached answers of this pack
    #[arg(long, value_parser = PackName::new)]
    pub(crate) pack: Option<PackName>,
    /// Cached answers with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Entries of this caller: tenant/user (its sessions too) or tenant/user/session
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    pub(crate) namespace: Option<Namespace>,
    /// Everything, of everybody
    #[arg(long)]
    pub(crate) all: bool,
}
