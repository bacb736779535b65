//! Command line of `helmdeck forge linear`, also named `tracker` and `github`.

use clap::{Args, Subcommand};

/// `helmdeck forge linear`.
#[derive(Debug, Subcommand)]
pub(crate) enum LinearCommand {
    /// Show what waits, what failed, and what was changed on both sides
    Status,
    /// Take over what changed in the tracker
    Pull {
        /// Read all open and known issues, not only those that changed
        #[arg(long)]
        full: bool,
        /// Show what would change; write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Deliver what changed here
    Push {
        /// Show what would be sent; send nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Pull, then push
    Sync {
        /// Show what would change; write and send nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Settle a field that was changed on both sides
    Resolve(ResolveArgs),
    /// List the changes that wait for the tracker
    Outbox,
    /// Try failed changes again at the next push
    Retry {
        /// Change, or key of a local issue that was dropped [default: all that failed]
        id: Option<String>,
    },
    /// Drop a waiting change; the fields here get the tracker's values back, a new issue stays here
    Drop {
        /// Change
        id: String,
        /// Why nobody needs it
        #[arg(long, value_name = "TEXT")]
        why: String,
    },
    /// Show how states, types and people of the project and of the team belong together
    Map,
}

/// `helmdeck forge linear resolve`.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// Key of the issue
    pub(crate) key: String,
    /// Field, like title or state
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: String,
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
