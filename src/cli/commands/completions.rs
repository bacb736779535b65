//! `helmdeck completions`: prints a completion script for a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Result;
use crate::output::Output;

/// Prints the script.
///
/// # Errors
/// A silent failure if the reader went away.
pub(crate) fn run(shell: Shell, output: &Output) -> Result<()> {
    // Into memory first: the generator panics when a pipe breaks under it.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "helmdeck", &mut script);
    output.result(&script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "helmdeck", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("savings") && script.contains("doctor"), "{shell}");
        }
    }
}
