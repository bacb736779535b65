//! Prompt for a secret, without echo. The terminal is restored however the prompt ends.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure, Result};
use crate::signals::Stop;

/// The longest secret, in bytes. A terminal passes on 4,095 bytes of a line and drops the rest.
const MAX_BYTES: usize = 4000;

/// Asks on the terminal of the process.
///
/// # Errors
/// Exit 1 if a signal (or Ctrl-C) ends it; a usage failure if there is no terminal, or the secret
/// is too long for one.
pub(crate) async fn secret(question: &'static str) -> Result<Zeroizing<String>> {
    let cannot =
        |error: std::io::Error| Failure::usage(format!("the secret cannot be asked for: {error}"));
    // Ctrl-C is a signal too. Uncaught, it would end the process before the echo is restored.
    let mut stop = Stop::catch()?;
    let mut terminal = File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .map_err(cannot)?;
    let before = tcgetattr(&terminal).map_err(|error| cannot(error.into()))?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    hidden.local_modes.insert(LocalModes::ECHONL);
    // Only here are the modes changed, so that no thread changes them after they were restored.
    tcsetattr(&terminal, OptionalActions::Now, &hidden).map_err(|error| cannot(error.into()))?;
    let answer = match terminal
        .write_all(question.as_bytes())
        .and_then(|()| terminal.try_clone())
    {
        Ok(input) => tokio::select! {
            biased;
            () = stop.wait() => None,
            line = tokio::task::spawn_blocking(move || line(input)) => Some(line),
        },
        Err(error) => Some(Ok(Err(error))),
    };
    // After a signal the thread still reads. It ends with the process.
    tcsetattr(&terminal, OptionalActions::Now, &before).map_err(|error| cannot(error.into()))?;
    let Some(answer) = answer else {
        return Err(Failure::new(
            Exit::Failed,
            "interrupted; nothing was changed",
        ));
    };
    let text = answer.map_err(Failure::internal)?.map_err(cannot)?;
    if text.len() > MAX_BYTES {
        return Err(Failure::usage(format!(
            "the secret is longer than {MAX_BYTES} bytes, which a terminal may cut"
        ))
        .with_hint("give it in a file, or on standard input"));
    }
    Ok(text)
}

/// Reads a line, without its end.
fn line(input: File) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(2 * MAX_BYTES));
    BufReader::new(input.take(2 * MAX_BYTES as u64)).read_line(&mut text)?;
    if text.is_empty() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::UnexpectedEof,
            "the input ended",
        ));
    }
    let length = text.trim_end_matches(['\n', '\r']).len();
    text.truncate(length);
    Ok(text)
}
