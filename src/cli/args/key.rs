//! Command line of `helmdeck key`.

use clap::Subcommand;

/// `helmdeck key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print a new random key
    Generate,
    /// Check that the key in the environment is well-formed, and print its id
    Check,
}
