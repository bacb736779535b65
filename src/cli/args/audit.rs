//! Arguments of `helmdeck audit`.

use clap::Subcommand;

/// `helmdeck audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no audit entry is missing, altered or put back; list what administrators removed
    #[command(
        after_help = "It opens every audit entry, while servers run. Exit 8 if something is wrong. The line of a caller ends\n\
        with its head: chain, number and digest of the last entry. Keep it elsewhere: a whole store that was put back to\n\
        an earlier moment has an earlier head, and nothing else tells."
    )]
    Verify {
        /// Note what is missing as known, so that it is not reported again
        #[arg(long)]
        accept: bool,
    },
}
