//! `helmdeck conversation add`: adds one turn from the command line, or many from a file.

use helmdeck_core::text::count;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use helmdeck_conversation::{Added, Identity, NewTurn, Strategy};

use super::context::{CommandContext, LOCAL, identity, read_all, shown};
use crate::args::AddArgs;
use crate::exit::{Exit, Failure, Result};

/// Limit of a line of a file, and of stdin, in bytes. No stored turn is that large.
const MAX_BYTES: u64 = 64 << 20;

/// Adds turns.
///
/// # Errors
/// A usage failure for texts that cannot be read; exit 1 at the first line of a file that is not a
/// turn, or a turn that is refused. Turns before that line are added.
pub(super) async fn run(on: &CommandContext<'_>, arguments: &AddArgs) -> Result<()> {
    let identity = identity(&arguments.which);
    match &arguments.file {
        Some(file) => of_file(on, &identity, file).await?,
        None => {
            let added = add(on, &identity, of_arguments(arguments)?).await?;
            on.print(&added, || match (added.id, added.repeated) {
                (Some(id), false) => format!("added {id} ({} tokens)", added.tokens),
                (Some(id), true) => format!("{id} exists already"),
                (None, _) => String::new(),
            })?;
        }
    }
    note_strategy(on, &identity).await
}

async fn add(on: &CommandContext<'_>, identity: &Identity, turn: NewTurn) -> Result<Added> {
    if turn.is_empty() {
        // Most likely an empty pipe, which should not become a turn.
        return Err(Failure::usage("the turn is empty"));
    }
    let own = (&*identity.tenant, &*identity.user) == (LOCAL, LOCAL);
    let added = if own {
        on.memory.add_turn(identity, turn).await
    } else {
        on.memory.put_turn(identity, turn).await
    };
    Ok(added?)
}

fn of_arguments(arguments: &AddArgs) -> Result<NewTurn> {
    let texts =
        [&arguments.user, &arguments.assistant].map(|text| text.as_deref().unwrap_or_default());
    if texts == ["-", "-"] {
        return Err(
            Failure::usage("stdin is one text: --user or --assistant, not both")
                .with_hint("`--file -` reads whole turns"),
        );
    }
    let [user, assistant] = texts.map(|text| {
        if text == "-" {
            stdin()
        } else {
            Ok(text.to_owned())
        }
    });
    let mut turn = NewTurn::new(user?, assistant?);
    turn.timestamp.clone_from(&arguments.at);
    turn.once.clone_from(&arguments.once);
    Ok(turn)
}

fn stdin() -> Result<String> {
    let bytes = read_all(io::stdin().lock(), MAX_BYTES, "stdin")?;
    let mut text =
        String::from_utf8(bytes).map_err(|_| Failure::usage("stdin is not UTF-8 text"))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Adds the turns of a file.
///
/// With `--json`, each turn is printed once it is stored, so that a reader knows which ones need no
/// retry.
async fn of_file(on: &CommandContext<'_>, identity: &Identity, file: &Path) -> Result<()> {
    let (name, mut lines): (_, Box<dyn BufRead>) = if file == Path::new("-") {
        ("stdin".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let name = file.display().to_string();
        let opened = File::open(file).map_err(|error| Failure::of_file(&name, &error))?;
        (name, Box::new(BufReader::new(opened)))
    };
    let (mut added, mut repeated) = (0, 0);
    let mut number = 0_u64;
    let end = loop {
        number += 1;
        let line = match next(&mut lines) {
            Ok(None) => break Ok(()),
            Ok(Some(line)) if line.trim_ascii().is_empty() => continue,
            Ok(Some(line)) => line,
            Err(message) => break Err(Failure::new(Exit::Failed, message)),
        };
        match turn(&line) {
            Ok(turn) => match add(on, identity, turn).await {
                Ok(new) if on.setup.output.json => on.print(&new, String::new)?,
                Ok(new) if new.repeated => repeated += 1,
                Ok(_) => added += 1,
                Err(failure) => break Err(failure),
            },
            Err(message) => break Err(Failure::new(Exit::Failed, message)),
        }
    };
    if !on.setup.output.json && on.memory.config().strategy != Strategy::None {
        let there = if repeated > 0 {
            format!("; {} there already", count(repeated, "turn"))
        } else {
            String::new()
        };
        on.setup.output.text(&format!(
            "added {} to {}{there}",
            count(added, "turn"),
            shown(identity)
        ))?;
    }
    end.map_err(|failure| failure.at(&format!("{name}, line {number}")))
}

/// Reads the next line, `None` at the end.
fn next(lines: &mut dyn BufRead) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    let read = lines
        .take(MAX_BYTES + 1)
        .read_until(b'\n', &mut line)
        .map_err(|error| error.to_string())?;
    if line.len() as u64 > MAX_BYTES {
        return Err(format!("the line has more than {MAX_BYTES} bytes"));
    }
    Ok((read > 0).then_some(line))
}

/// Parses a turn. The error does not repeat the turn's text.
fn turn(line: &[u8]) -> Result<NewTurn, String> {
    serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        let named = ["unknown field", "missing field", "duplicate field"]
            .iter()
            .any(|start| text.starts_with(start));
        let column = error.column();
        match error.classify() {
            serde_json::error::Category::Data if named => text
                .split(" at line ")
                .next()
                .unwrap_or_default()
                .to_owned(),
            serde_json::error::Category::Data => {
                format!("no turn: a value of the wrong type before column {column}")
            }
            _ => format!("no JSON: column {column}"),
        }
    })
}

/// Prints how the strategy treated the turns, if the user should know.
async fn note_strategy(on: &CommandContext<'_>, identity: &Identity) -> Result<()> {
    if on.setup.output.json {
        return Ok(());
    }
    match on.memory.config().strategy {
        Strategy::None => on
            .setup
            .output
            .note("warning: the strategy is none, so nothing is kept"),
        Strategy::Truncation => {}
        Strategy::RollingSummary => {
            let waiting = on.memory.trace(identity).await?.backlog_turns;
            if waiting > 0 {
                let turns = count(waiting, "turn");
                on.setup
                    .output
                    .note(&format!("{turns} to be summed up: by a running server, or by `helmdeck conversation fold`"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_turn_or_says_what_is_wrong_without_repeating_it() {
        let read = turn(br#"{"user_message": "u", "once": "1"}"#).unwrap();
        assert_eq!(
            (read.user_message.as_str(), read.once.as_deref()),
            ("u", Some("1"))
        );
        for (line, expected) in [
            (r#"{"user_message": "canary""#, "no JSON: column 25"),
            (
                r#"{"user_message": ["canary"]}"#,
                "no turn: a value of the wrong type before column",
            ),
            (
                r#""canary""#,
                "no turn: a value of the wrong type before column",
            ),
            (r#"{"user_text": "canary"}"#, "unknown field `user_text`"),
            (
                r#"{"once": "a", "once": "canary"}"#,
                "duplicate field `once`",
            ),
        ] {
            let message = turn(line.as_bytes()).unwrap_err();
            assert!(
                message.starts_with(expected) && !message.contains("canary"),
                "{line}: {message}"
            );
        }
    }

    #[test]
    fn lines_come_one_by_one_and_an_endless_one_is_refused() {
        let mut lines: &[u8] = b"a\n\nb";
        let mut texts = Vec::new();
        while let Some(line) = next(&mut lines).unwrap() {
            texts.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(texts, ["a\n", "\n", "b"]);
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert!(next(&mut endless).unwrap_err().contains("more than"));
    }
}
