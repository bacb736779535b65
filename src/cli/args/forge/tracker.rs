//! Command line of `helmdeck forge tracker`.

use clap::{Args, Subcommand};

/// `helmdeck forge tracker`.
#[derive(Debug, Subcommand)]
pub(crate) enum TrackerCommand {
    /// Show what waits, what failed, and what was changed on both sides
    Status,
    /// Take over what changed in the tracker, then deliver what changed here
    Sync(SyncArgs),
    /// Settle a field that was changed on both sides, or give up what waits for an issue
    Resolve(ResolveArgs),
}

/// `helmdeck forge tracker sync`.
#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    /// Only take over what changed in the tracker
    #[arg(long, conflicts_with = "push")]
    pub(crate) pull: bool,
    /// Only deliver what changed here
    #[arg(long)]
    pub(crate) push: bool,
    /// Read all open and known issues, not only those that changed
    #[arg(long, conflicts_with = "push")]
    pub(crate) full: bool,
    /// Show what would change; write and send nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `helmdeck forge tracker resolve`.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// Key of the issue
    pub(crate) key: String,
    /// Field, like title or state; without it, --theirs gives up the changes that wait for the
    /// tracker
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: Option<String>,
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
}

/// The value that counts.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ChoiceArgs {
    /// Keep the value here and push it
    #[arg(long)]
    pub(crate) ours: bool,
    /// Take the value of the tracker
    #[arg(long)]
    pub(crate) theirs: bool,
    /// Set another value and push it
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
}
