//! Mistakes of the command line, in the words of every other failure.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use helmdeck_core::text::one_line;

use crate::args::forge::tip;
use crate::exit::Failure;

/// Returns what clap found wrong, on one line.
pub(crate) fn cause(error: &clap::Error) -> String {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return "no command is named".to_owned();
    }
    // Tips and the usage follow the message after an empty line. A continued line is indented.
    let rendered = error.render().to_string();
    let lines = rendered
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .split("\n  ");
    let line = one_line(&lines.map(str::trim).collect::<Vec<_>>().join(" "));
    line.strip_prefix("error: ")
        .map_or(line.clone(), str::to_owned)
}

/// Returns the word that was probably meant.
pub(crate) fn meant(error: &clap::Error) -> Option<String> {
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(one_line(word)),
        // Of several, the last is the nearest.
        ContextValue::Strings(words) => words.last().map(|word| one_line(word)),
        _ => None,
    })
}

/// Makes the failure of a command line: what is wrong, what was probably meant, and where to find
/// help.
pub(crate) fn failure(
    error: &clap::Error,
    command: &clap::Command,
    arguments: impl Iterator<Item = OsString>,
) -> Failure {
    let path = path(command, arguments);
    let tip = tried(error)
        .and_then(|word| tip(&path, &word))
        .map(|tip| format!("{tip}; "));
    let meant = || {
        meant(error)
            .map(|word| format!("did you mean `{word}`? "))
            .unwrap_or_default()
    };
    let help = format!(
        "{}`{path} --help` says how it is called",
        tip.unwrap_or_else(meant)
    );
    Failure::usage(cause(error)).with_hint(help)
}

/// Returns the word that is no command here.
fn tried(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        _ => None,
    })
}

/// Returns the command that the arguments name, as far as they are understood: `helmdeck pack
/// list`.
fn path(command: &clap::Command, arguments: impl Iterator<Item = OsString>) -> String {
    let (mut path, mut at) = (command.get_name().to_owned(), command);
    for word in arguments
        .skip(1)
        .filter_map(|word| word.into_string().ok())
        .filter(|word| !word.starts_with('-'))
    {
        let Some(inner) = at.find_subcommand(&word) else {
            continue;
        };
        path.push_str(&format!(" {}", inner.get_name()));
        at = inner;
    }
    path
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Cli;

    fn said(words: &[&str]) -> String {
        let words = || std::iter::once("helmdeck").chain(words.iter().copied());
        let error = Cli::try_parse_from(words()).unwrap_err();
        failure(&error, &Cli::command(), words().map(OsString::from)).text()
    }

    #[test]
    fn mistakes_have_cause_suggestion_and_help() {
        for (words, cause, hint) in [
            (
                &["pack", "lst"][..],
                "'lst'",
                "did you mean `list`? `helmdeck pack --help`",
            ),
            (
                &["run", "a.b", "--jsn"],
                "'--jsn'",
                "did you mean `--json`? `helmdeck run --help`",
            ),
            (
                &["pack", "show"],
                "not provided: <PACK[@VERSION]>",
                "hint: `helmdeck pack show --help`",
            ),
            (&["run", "a.b@x"], "'a.b@x'", "hint: `helmdeck run --help`"),
            (
                &["forge", "rollback"],
                "'rollback'",
                "hint: `helmdeck forge recover assess` says whether",
            ),
            (
                &["forge", "features", "done", "A-001"],
                "'done'",
                "hint: nobody marks a feature as working",
            ),
            (
                &["forge", "issue", "start"],
                "'start'",
                "hint: `helmdeck forge start KEY`",
            ),
        ] {
            let text = said(words);
            assert!(
                text.starts_with("error: ") && !text.starts_with("error: error"),
                "{text}"
            );
            assert!(text.contains(cause) && text.contains(hint), "{text}");
            assert_eq!(text.lines().count(), 2, "{text}");
        }
    }
}
