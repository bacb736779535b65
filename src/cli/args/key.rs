//! Command line of `helmdeck key`.

use clap::Subcommand;

/// `helmdeck key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Write a memory key file and name it in the configuration; this turns memory on
    Init,
    /// Print a new random key
    Generate,
    /// Check that the memory key is well-formed, and print its id
    Check,
    /// Print the id of the memory key and where it comes from
    Show {
        /// Print the key itself, at a terminal only
        #[arg(long)]
        reveal: bool,
    },
    /// Print the path of the memory key file
    Path,
}
