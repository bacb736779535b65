//! Entry point: parses the arguments, runs the command and maps its result to an exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

use crate::args::Cli;
use crate::args::seam::SeamCli;
use crate::commands;
use crate::completion;
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::misread;
use crate::output::Output;
use crate::signals;

/// Runs the program and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    helmdeck_process::close_descriptors_on_exec();
    if ProcessEnvironment::arguments()
        .nth(1)
        .is_some_and(|argument| argument == helmdeck_engine::STAGE)
    {
        return stage();
    }
    if ProcessEnvironment::arguments()
        .nth(1)
        .is_some_and(|argument| argument == helmdeck_process::REAPER)
    {
        helmdeck_process::reap();
        return ExitCode::SUCCESS;
    }
    logging::hide_panics();
    if ProcessEnvironment::arguments()
        .nth(1)
        .is_some_and(|word| word == commands::connect::NAME)
    {
        return commands::connect::run(
            ProcessEnvironment::arguments().skip(2),
            &ProcessEnvironment::of_process(),
        );
    }
    if let Some(code) = completion::answer(&ProcessEnvironment::of_process()) {
        return code;
    }
    if let Some(arguments) = SeamCli::arguments(ProcessEnvironment::arguments()) {
        return ExitCode::from(commands::seam::main(
            arguments,
            &ProcessEnvironment::of_process(),
        ));
    }
    let cli = match Cli::try_parse_from(ProcessEnvironment::arguments()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let env = ProcessEnvironment::of_process();
    let output = Output {
        quiet: cli.global.quiet,
        ..Output::of_process(&env, cli.global.json, cli.global.verbose)
    };
    match commands::run(cli, env, output) {
        Ok(()) => code(Exit::Ok),
        Err(failure) => {
            let failure = failure.after_signal(signals::exit_code());
            let failure = if output.verbose > 0 {
                failure.said_verbosely()
            } else {
                failure
            };
            output.failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// Runs as a stage of a session's command: sets its limits, then becomes the command.
///
/// Nothing else is read or started before that.
fn stage() -> ExitCode {
    let (status, message) = helmdeck_engine::stage(ProcessEnvironment::arguments().skip(2));
    if let Some(message) = message {
        // A failed write means that the reader is gone.
        let _ = writeln!(std::io::stderr(), "{message}");
    }
    ExitCode::from(status)
}

fn code(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
}

/// Prints what clap has to say: help and version as they are, mistakes as every other failure.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A failed write means that the reader is gone.
        let _ = error.print();
        return code(if error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Ok
        });
    }
    let json = ProcessEnvironment::arguments().any(|argument| argument == "--json");
    let output = Output::of_process(&ProcessEnvironment::of_process(), json, 0);
    let failure = if error.kind() == ErrorKind::UnknownArgument
        && is_vault_set(ProcessEnvironment::arguments())
    {
        // What is too much may be the secret, so it is not repeated.
        Failure::usage("the command line of `vault set` has something that does not belong there")
            .with_hint("a secret comes from stdin or the prompt, never as an argument; see `helmdeck vault set --help`")
    } else {
        misread::failure(error, &Cli::command(), ProcessEnvironment::arguments())
    };
    if json && is_forge() {
        // A failed write means that the reader is gone.
        let _ = output.value(&commands::forge::refusal(&failure));
    } else {
        output.failure(&failure);
    }
    code(Exit::Usage)
}

/// Says whether an invalid command line belongs to `helmdeck forge`.
///
/// Those commands report their outcome on stdout.
fn is_forge() -> bool {
    let matches = Cli::command()
        .ignore_errors(true)
        .try_get_matches_from(ProcessEnvironment::arguments());
    matches.is_ok_and(|matches| matches.subcommand_name() == Some("forge"))
}

fn is_vault_set<T: PartialEq<str>>(arguments: impl Iterator<Item = T>) -> bool {
    let mut words = arguments.skip_while(|word| *word != *"vault").skip(1);
    words.any(|word| word == *"set" || word == *"rotate")
}
