//! `session run`: runs a command for a session, keeps the session alive, and logs exit and duration.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helmdeck_core::text;
use helmdeck_process::Signal;
use helmdeck_process::blocking::{Child, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use super::{End, Finished, Sessions};
use crate::error::{Category, Error, Result};

/// The variable with the session id, for the command.
pub const VARIABLE: &str = "HELMDECK_FORGE_SESSION";
/// How often `stop` is checked.
const LOOK: Duration = Duration::from_millis(20);
/// Time for a command to end after SIGTERM. The rest of [`STOP`] is for the end of the session.
const GRACE: Duration = Duration::from_millis(1_000);
/// Maximum time for everything when this process is asked to stop.
const STOP: Duration = Duration::from_secs(2);
/// Minimum time for git even then, which is enough for most of its work.
const LEAST: Duration = Duration::from_millis(300);
/// How often the lease of the session is renewed.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Maximum length of a command in the log, in characters.
const SHOWN: usize = 200;

/// Options to run a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct How {
    /// Whether its standard output goes to standard error.
    pub aside: bool,
    /// Whether it runs in a separate process group, which is stopped as one.
    ///
    /// At a terminal it then cannot read input.
    pub apart: bool,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outcome {
    /// The session.
    pub session: String,
    /// The command, shortened.
    pub command: String,
    /// Its exit code; `null` if a signal ended it.
    pub exit: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Duration, in milliseconds.
    pub ms: u64,
    /// Whether it was stopped because this process was asked to stop.
    pub stopped: bool,
    /// The end of the session, if it was stopped.
    pub ended: Option<Finished>,
}

impl Sessions<'_> {
    /// Runs a command for the current session, with the caller's terminal.
    ///
    /// When `stop` becomes true, the command is asked to end, and the session ends within two seconds.
    ///
    /// # Errors
    /// `NotFound` without a session; `Locked` if another process uses it; `Failed` if the command cannot be started.
    pub fn run(&self, command: &[String], stop: &AtomicBool, how: How) -> Result<Outcome> {
        self.project.check_not_paused()?;
        let session = self.required()?;
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Error::usage("a command to run is missing: session run -- cargo test"))?;
        let hold = self.hold(&session.id)?;
        let clock = self.project.environment().clock.clone();
        let begun = clock.monotonic();
        let mut run = Command::new(program);
        run.args(arguments).env(VARIABLE, &session.id);
        if how.aside {
            run.stdout(std::io::stderr());
        }
        let scope = if how.apart { Scope::Group } else { Scope::Program };
        let mut child = Child::spawn(&mut run, scope)
            .map_err(|error| Error::new(Category::Failed, "E_RUN", format!("cannot run {program}: {error}")))?;
        let (status, asked) = self.wait(&mut child, stop)?;
        let stopped = asked.is_some();
        let ms = u64::try_from(clock.monotonic().saturating_sub(begun).as_millis()).unwrap_or(u64::MAX);
        let command = shown(command);
        let how = match (stopped, status.code()) {
            (true, _) => "stopped".to_owned(),
            (false, Some(code)) => format!("exit {code}"),
            (false, None) => "ended by a signal".to_owned(),
        };
        let seconds = ms / 1000;
        // A command that looks like it contains a credential is not logged, only that a command ran.
        if self.note_run(&session.id, &format!("Ran {command}: {how} after {seconds} s")).is_err() {
            self.note_run(&session.id, &format!("Ran a command: {how} after {seconds} s"))?;
        }
        drop(hold);
        let ended = match asked {
            Some(asked) => {
                let end = End { leave_dirty: Some("stopped by a signal".to_owned()), ..End::default() };
                let left = STOP.saturating_sub(clock.monotonic().saturating_sub(asked));
                Some(self.end_soon(&session.id, &end, (left / 2).max(LEAST))?)
            }
            None => None,
        };
        Ok(Outcome { session: session.id, command, exit: status.code(), signal: status.signal(), ms, stopped, ended })
    }

    /// Waits for the command and renews the lease of the session.
    ///
    /// Returns when the command has exited, which includes a command that was asked to stop.
    fn wait(&self, child: &mut Child, stop: &AtomicBool) -> Result<(ExitStatus, Option<Duration>)> {
        let failed = |error: std::io::Error| Error::new(Category::Failed, "E_RUN", format!("cannot wait: {error}"));
        let clock = self.project.environment().clock.clone();
        let (mut asked, mut seen) = (None, clock.monotonic());
        while !child.ends_within(LOOK).map_err(failed)? {
            match asked {
                None if stop.load(Ordering::SeqCst) => {
                    asked = Some(clock.monotonic());
                    child.signal(Signal::TERM);
                }
                Some(since) if clock.monotonic().saturating_sub(since) > GRACE => {
                    child.signal(Signal::KILL);
                    break;
                }
                _ => {}
            }
            if clock.monotonic().saturating_sub(seen) >= HEARTBEAT {
                seen = clock.monotonic();
                // A failure is harmless: the next renewal repairs it.
                let _ = self.touch();
            }
        }
        if asked.is_some() {
            // Kill what the command started and left running.
            child.signal(Signal::KILL);
        }
        Ok((child.reap().map_err(failed)?, asked))
    }

    fn note_run(&self, id: &str, line: &str) -> Result<()> {
        match self.living()?.get(id) {
            Some(session) => self.progress(session)?.log(line).map(drop),
            None => Ok(()),
        }
    }
}

/// Returns a command in one line, shortened for the log.
fn shown(command: &[String]) -> String {
    text::truncate(&text::without_controls(&command.join(" ")), SHOWN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_logged_in_one_short_line() {
        assert_eq!(shown(&["sh".to_owned(), "-c".to_owned(), "a\nb".to_owned()]), "sh -c a b");
        assert_eq!(shown(&["é".repeat(300)]), format!("{}…", "é".repeat(200)));
    }
}
