//! `helmdeck completions`: prints a completion script for a shell.

use clap_complete::Shell;

use crate::completion;
use crate::exit::Result;
use crate::output::Output;

/// Prints the script.
///
/// # Errors
/// A silent failure if the reader went away.
pub(crate) fn run(shell: Shell, output: &Output) -> Result<()> {
    output.result(&completion::script(shell)?)
}
