//! A command that is run for a session: the session lives as long as the command, and its exit and time are noted.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use helmdeck_core::text;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use schemars::JsonSchema;
use serde::Serialize;

use super::{End, Finished, Sessions};
use crate::error::{Category, Error, Result};

/// The variable that tells a command which session it is in.
pub const VARIABLE: &str = "HELMDECK_FORGE_SESSION";
/// How often one looks whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long a command has to end when it is asked to: what is left of two seconds is for the end of the session.
const GRACE: Duration = Duration::from_millis(1_000);
/// How long all of it may take when this process is asked to stop.
const STOP: Duration = Duration::from_secs(2);
/// So long git may take at least even then: most of what is left out otherwise takes less.
const LEAST: Duration = Duration::from_millis(300);
/// How often one says that the session lives.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// The longest command that is noted, in characters.
const SHOWN: usize = 200;

/// How a command is run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct How {
    /// What it prints comes where errors go.
    pub aside: bool,
    /// It has a process group of its own, which is stopped with it. At a terminal it could not read what is typed.
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
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Whether it was stopped because this process was asked to stop.
    pub stopped: bool,
    /// The end of the session, if it was stopped.
    pub ended: Option<Finished>,
}

impl Sessions<'_> {
    /// Runs a command for the current session, with the terminal of the caller. When `stop` turns true the command is asked to end, and
    /// the session ends as well as that can be done in two seconds.
    ///
    /// # Errors
    /// `NotFound` without a session; `Locked` if another process works for it; `Failed` if the command cannot be started.
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
        if how.apart {
            run.process_group(0);
        }
        if how.aside {
            run.stdout(std::io::stderr());
        }
        let mut child = run
            .spawn()
            .map_err(|error| Error::new(Category::Failed, "E_RUN", format!("cannot run {program}: {error}")))?;
        let (status, asked) = self.wait(&mut child, stop, how)?;
        let stopped = asked.is_some();
        let ms = u64::try_from(clock.monotonic().saturating_sub(begun).as_millis()).unwrap_or(u64::MAX);
        let command = shown(command);
        let how = match (stopped, status.code()) {
            (true, _) => "stopped".to_owned(),
            (false, Some(code)) => format!("exit {code}"),
            (false, None) => "ended by a signal".to_owned(),
        };
        let seconds = ms / 1000;
        // A command that holds something like a credential is not noted; that one ran is.
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

    /// Waits for the command, and keeps the lease of the session. Also returns when it was asked to stop.
    fn wait(&self, child: &mut Child, stop: &AtomicBool, how: How) -> Result<(ExitStatus, Option<Duration>)> {
        let failed = |error: std::io::Error| Error::new(Category::Failed, "E_RUN", format!("cannot wait: {error}"));
        let clock = self.project.environment().clock.clone();
        let (mut asked, mut seen) = (None, clock.monotonic());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // It may have ended meanwhile.
        let tell = |signal: Signal| match pid {
            Some(pid) if how.apart => drop(kill_process_group(pid, signal)),
            Some(pid) => drop(kill_process(pid, signal)),
            None => {}
        };
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                if asked.is_some() && how.apart {
                    // What it started and did not end goes with it.
                    tell(Signal::KILL);
                }
                return Ok((status, asked));
            }
            match asked {
                None if stop.load(Ordering::SeqCst) => {
                    asked = Some(clock.monotonic());
                    tell(Signal::TERM);
                }
                Some(since) if clock.monotonic().saturating_sub(since) > GRACE => {
                    tell(Signal::KILL);
                    child.kill().map_err(failed)?;
                    return Ok((child.wait().map_err(failed)?, asked));
                }
                _ => {}
            }
            if clock.monotonic().saturating_sub(seen) >= HEARTBEAT {
                seen = clock.monotonic();
                // That it lives can be told a little later as well.
                let _ = self.touch();
            }
            thread::sleep(LOOK);
        }
    }

    fn note_run(&self, id: &str, line: &str) -> Result<()> {
        match self.living()?.get(id) {
            Some(session) => self.progress(session)?.log(line).map(drop),
            None => Ok(()),
        }
    }
}

/// Returns a command as a line notes it: in one line, and not all of a long one.
fn shown(command: &[String]) -> String {
    text::truncate(&text::without_controls(&command.join(" ")), SHOWN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_noted_in_one_line_that_is_not_too_long() {
        assert_eq!(shown(&["sh".to_owned(), "-c".to_owned(), "a\nb".to_owned()]), "sh -c a b");
        assert_eq!(shown(&["é".repeat(300)]), format!("{}…", "é".repeat(200)));
    }
}
