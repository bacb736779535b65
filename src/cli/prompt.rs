//! Prompt for a secret, without echo. The terminal is restored however the prompt ends.

use std::fs::File;
use std::io::ErrorKind;

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure, Result};
use crate::signals::Stop;

/// Asks on the terminal of the process.
///
/// # Errors
/// Exit 1 if a signal (or Ctrl-C) ends it; a usage failure if there is no terminal.
pub(crate) async fn secret(question: &'static str) -> Result<Zeroizing<String>> {
    let cannot = |error: std::io::Error| Failure::usage(format!("the secret cannot be asked for: {error}"));
    // Ctrl-C is a signal too. Uncaught, it would end the process before the echo is restored.
    let mut stop = Stop::catch()?;
    let terminal = File::open("/dev/tty").map_err(cannot)?;
    let before = tcgetattr(&terminal).map_err(|error| cannot(error.into()))?;
    let asking = tokio::task::spawn_blocking(move || rpassword::prompt_password(question).map(Zeroizing::new));
    let answer = tokio::select! {
        biased;
        () = stop.wait() => None,
        answer = asking => Some(answer.map_err(Failure::internal)?),
    };
    // After a signal the thread still reads: it ends with the process, and cannot put the terminal back itself.
    tcsetattr(&terminal, OptionalActions::Now, &before).map_err(|error| cannot(error.into()))?;
    match answer {
        Some(Ok(text)) => Ok(text),
        Some(Err(error)) if error.kind() != ErrorKind::Interrupted => Err(cannot(error)),
        _ => Err(Failure::new(Exit::Failed, "interrupted; nothing was changed")),
    }
}
