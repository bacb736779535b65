//! Kills the running process groups when this process is killed.
//!
//! A process that gets `SIGKILL` cannot clean up. So before its first program it starts one more
//! process, the reaper, and reports the running groups to it through a pipe. The pipe closes when
//! the process ends, for whatever reason, and the reaper kills the groups that still run.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use crate::group::GroupId;

/// Argument that makes a program the reaper.
pub const REAPER: &str = "__reaper";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static PIPE: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Enables the reaper, for all groups of the asynchronous interface.
///
/// The program must call [`reap`] if its first argument is [`REAPER`]. It is started before the
/// first group.
pub fn reap_when_killed(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Reads the running groups from standard input until it closes, and kills those that still run.
pub fn reap() {
    for group in left(io::stdin().lock()) {
        group.kill();
    }
}

/// Reads lines `+<id>` and `-<id>`, and returns the groups that were added and not removed.
fn left(lines: impl BufRead) -> Vec<GroupId> {
    let mut groups = BTreeSet::new();
    for line in lines.lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", id)) => drop(groups.insert(id.to_owned())),
            Some(("-", id)) => drop(groups.remove(id)),
            _ => {}
        }
    }
    groups
        .iter()
        .filter_map(|id| GroupId::of_leader(id.parse().ok()?))
        .collect()
}

/// A group that the reaper knows.
#[derive(Debug)]
pub(crate) struct Reaped(GroupId);

impl Reaped {
    /// Reports a group to the reaper, if it is enabled.
    pub(crate) fn new(group: GroupId) -> Option<Self> {
        let program = PROGRAM.get()?;
        report(program, '+', group);
        Some(Self(group))
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        if let Some(program) = PROGRAM.get() {
            report(program, '-', self.0);
        }
    }
}

/// Starts the reaper, if it is enabled and not running.
///
/// It comes before the first program: a kill while the reaper starts must not leave that program.
pub(crate) fn prepare() {
    if let Some(program) = PROGRAM.get() {
        drop(running(program));
    }
}

/// Pipe to the reaper, which is started if it is not running. `None` if it cannot start: everything
/// else works.
fn running(program: &Path) -> MutexGuard<'static, Option<ChildStdin>> {
    let mut pipe = PIPE.lock();
    if pipe.is_none() {
        *pipe = start(program).ok().flatten();
    }
    pipe
}

/// Fails silently: without a reaper, everything else works.
fn report(program: &Path, sign: char, group: GroupId) {
    if let Some(pipe) = running(program).as_mut() {
        let _ = pipe.write_all(format!("{sign}{}\n", group.leader().as_raw_nonzero()).as_bytes());
    }
}

/// Starts the reaper in its own process group and without an environment.
///
/// A kill of this process's group does not reach it. The environment may hold keys.
fn start(program: &Path) -> io::Result<Option<ChildStdin>> {
    let mut command = Command::new(program);
    command
        .arg(REAPER)
        .env_clear()
        .current_dir("/")
        .process_group(0);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(child.stdin.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_still_run_are_left() {
        let ids = |text: &str| -> Vec<i32> {
            left(text.as_bytes())
                .into_iter()
                .map(|group| group.leader().as_raw_nonzero().get())
                .collect()
        };
        assert_eq!(ids("+12\n+34\n-12\n"), [34]);
        // A line that is cut off was not written before the end.
        assert_eq!(ids("+12\n-12\n+x\n+0\n\n-5\n"), [] as [i32; 0]);
    }
}
