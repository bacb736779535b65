//! Shell completion: the program answers which words can come next.
//!
//! It reads configuration, manifests and local databases only. It opens and creates no store, uses
//! no network and starts no MCP server. Anything that cannot be read has no candidates.

mod shells;
mod values;

use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::CompleteEnv;
use clap_complete::engine::ArgValueCompleter;

use crate::args::Cli;
use crate::env::ProcessEnvironment;

pub(crate) use shells::script;

/// The variable by which a script asks for candidates; its value is the shell.
pub(crate) const VARIABLE: &str = "_HELMDECK_COMPLETE";

/// Arguments with candidates: the commands, the argument, and the function that knows them.
const COMPLETED: &[(&[&str], &str, values::Completer)] = &[
    (&["run"], "pack", values::packs),
    (&["run"], "pairs", values::pairs),
    (&["pack", "show"], "pack", values::packs),
    (&["cache", "explain"], "pack", values::packs),
    (&["cache", "explain"], "pairs", values::pairs),
    (&["cache", "ls"], "pack", values::packs),
    (&["cache", "purge"], "pack", values::packs),
    (&["job", "show"], "id", values::jobs),
    (&["job", "wait"], "id", values::jobs),
    (&["job", "result"], "id", values::jobs),
    (&["job", "cancel"], "id", values::jobs),
    (&["job", "list"], "after", values::jobs),
    (&["session", "exec"], "id", values::sessions),
    (&["session", "end"], "id", values::sessions),
    (&["mcp", "remove"], "name", values::mcp_servers),
];

/// Answers a shell that asks for candidates, `None` in any other run.
pub(crate) fn answer(env: &ProcessEnvironment) -> Option<ExitCode> {
    let asked = CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .shells(shells::ALL);
    match asked.try_complete(ProcessEnvironment::arguments(), env.working_dir()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        // A shell shows nothing; there is nobody to tell.
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// Returns the command line with its completers.
fn command() -> Command {
    COMPLETED
        .iter()
        .fold(Cli::command(), |command, (path, argument, completer)| {
            at(command, path, &|command| {
                command.mut_arg(argument, |argument: Arg| {
                    argument.add(ArgValueCompleter::new(*completer))
                })
            })
        })
}

fn at(command: Command, path: &[&'static str], change: &dyn Fn(Command) -> Command) -> Command {
    match path {
        [] => change(command),
        [first, rest @ ..] => command.mut_subcommand(first, |inner| at(inner, rest, change)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn completers_name_arguments_that_exist() {
        // A wrong name panics.
        command().debug_assert();
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Elvish,
        ] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(
                script.contains(VARIABLE) && script.contains("helmdeck"),
                "{shell}: {script}"
            );
        }
    }
}
