//! Runs git to its end: in a process group of its own, with a time limit, and with bounded output.

use parking_lot::Mutex;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Category, Error, Result};

/// How much of the end of stderr is kept, in bytes: what went wrong stands in the last lines.
const STDERR_BYTES: usize = 16 << 10;
/// How long nothing must come from the pipes of a program that has ended before they count as read: something it left running may hold
/// them open.
const GRACE: Duration = Duration::from_millis(500);

/// Variables that would send git elsewhere or change what it prints. Who commits (`GIT_AUTHOR_NAME`), where settings lie
/// (`GIT_CONFIG_GLOBAL`) and how ssh is started stay as the user has them.
const SCRUBBED: &[&str] = &[
    "GIT_ADVICE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
    "GIT_AUTHOR_DATE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMITTER_DATE",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_DIFF_OPTS",
    "GIT_DIR",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_EXTERNAL_DIFF",
    "GIT_GLOB_PATHSPECS",
    "GIT_GRAFT_FILE",
    "GIT_ICASE_PATHSPECS",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_LITERAL_PATHSPECS",
    "GIT_NAMESPACE",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_PROTOCOL",
    "GIT_QUARANTINE_PATH",
    "GIT_REDIRECT_STDERR",
    "GIT_REDIRECT_STDIN",
    "GIT_REDIRECT_STDOUT",
    "GIT_REFLOG_ACTION",
    "GIT_REF_PARANOIA",
    "GIT_REPLACE_REF_BASE",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SHALLOW_FILE",
    "GIT_TEMPLATE_DIR",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE2_PERF",
    "GIT_TRACE_PACKET",
    "GIT_TRACE_PERFORMANCE",
    "GIT_TRACE_SETUP",
    "GIT_WORK_TREE",
    "LANGUAGE",
];

/// Settings of every run: nothing is started beside git, and nothing is printed in colours or by way of a pager.
const SETTINGS: &[&str] = &[
    "core.fsmonitor=false",
    "color.ui=false",
    "log.showSignature=false",
    "core.quotePath=false",
    "diff.autoRefreshIndex=false",
];

/// How git is run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What it reads; nothing unless said otherwise.
    pub stdin: Vec<u8>,
    /// How long it may take; as long as the project's settings say, 60 seconds by default. After that it is killed, with all that it
    /// started.
    pub timeout: Option<Duration>,
    /// The most bytes that it may print; 64 MiB unless said otherwise.
    pub max_output: usize,
    /// Variables besides those that every run gets.
    pub environment: Vec<(String, OsString)>,
    /// Where it runs; the root of the work tree unless said otherwise.
    pub folder: Option<PathBuf>,
    /// Whether hooks of the user run; not unless said otherwise. Commits and pushes let them have their say.
    pub hooks: bool,
    /// Where what it prints goes instead, however much that is.
    pub to: Option<Arc<File>>,
    /// Whether it may write. Otherwise (so unless said) it takes no lock that it can do without, and refreshes no index.
    pub writes: bool,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            stdin: Vec::new(),
            timeout: None,
            max_output: 64 << 20,
            environment: Vec::new(),
            folder: None,
            hooks: false,
            to: None,
            writes: false,
        }
    }
}

impl Run {
    /// Returns how git is run when it writes.
    #[must_use]
    pub fn writing() -> Self {
        Self { writes: true, ..Self::default() }
    }

    /// Lets hooks run.
    #[must_use]
    pub fn with_hooks(mut self) -> Self {
        self.hooks = true;
        self
    }

    /// Gives it something to read.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Limits how long it may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// git has ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit code; `None` if a signal killed it.
    pub status: Option<i32>,
    /// All that it printed.
    pub stdout: Vec<u8>,
    /// The end of what it complained about, at most 16 KiB.
    pub stderr: String,
}

impl Output {
    /// Says whether it exited with 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.status == Some(0)
    }

    /// Returns what it printed as text, without white space at the end.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

/// A running program with all it started. Dropping it kills them.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Fails only if the group has gone, which is what is wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

enum Told {
    Ended(std::io::Result<ExitStatus>),
    Read { everything: bool },
}

type Shared = Arc<Mutex<Vec<u8>>>;

/// Runs git.
pub(super) fn run(
    root: &Path,
    environment: &[(String, OsString)],
    (usual, longest): (Duration, Option<Duration>),
    args: &[&str],
    run: &Run,
) -> Result<Output> {
    #[cfg(test)]
    assert!(!crate::files::holds_local(), "git {args:?} is run under the lock of a work tree, for which others wait");
    let mut command = Command::new("git");
    for name in SCRUBBED {
        command.env_remove(name);
    }
    command
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_PAGER", "cat")
        .env("GIT_EDITOR", ":")
        .env("GIT_OPTIONAL_LOCKS", if run.writes { "1" } else { "0" })
        .envs(environment.iter().chain(&run.environment).map(|(name, value)| (name, value)));
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    if !run.hooks {
        command.args(["-c", "core.hooksPath=/dev/null"]);
    }
    command.args(args).current_dir(run.folder.as_deref().unwrap_or(root)).process_group(0);
    let stdin = if run.stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
    let stdout = match &run.to {
        Some(file) => {
            let file = file.try_clone();
            Stdio::from(file.map_err(|error| failed(args, format!("cannot be started: {error}")))?)
        }
        None => Stdio::piped(),
    };
    command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound if run.folder.as_deref().unwrap_or(root).is_dir() => {
            Error::new(Category::Failed, "E_NO_GIT", "the program git is not found")
                .hint("install git, or put it in PATH")
        }
        _ => failed(args, format!("cannot be started: {error}")),
    })?;
    let limit = run.timeout.unwrap_or(usual);
    wait(child, args, run, longest.map_or(limit, |longest| limit.min(longest)))
}

fn wait(mut child: Child, args: &[&str], run: &Run, timeout: Duration) -> Result<Output> {
    let mut group = Group(i32::try_from(child.id()).ok().and_then(Pid::from_raw));
    let (tell, told) = channel();
    let (stdout, stderr) = (Shared::default(), Shared::default());
    if let Some(mut pipe) = child.stdin.take() {
        let bytes = run.stdin.clone();
        // git need not read its input; a broken pipe is its choice.
        thread::spawn(move || drop(pipe.write_all(&bytes)));
    }
    let mut pipes = 0;
    let mut ends: Vec<OwnedFd> = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipes += 1;
        ends.extend(pipe.as_fd().try_clone_to_owned());
        read(pipe, &stdout, run.max_output, false, tell.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        pipes += 1;
        ends.extend(pipe.as_fd().try_clone_to_owned());
        read(pipe, &stderr, STDERR_BYTES, true, tell.clone());
    }
    thread::spawn(move || drop(tell.send(Told::Ended(child.wait()))));

    // On a busy machine the threads that read may come to it late.
    let unread = || ends.iter().any(|end| rustix::io::ioctl_fionread(end).is_ok_and(|bytes| bytes > 0));
    let status =
        listen(&told, pipes, &mut group, timeout, &unread).map_err(|end| end.error(args, run.max_output, timeout))?;
    let take = |shared: &Shared| std::mem::take(&mut *shared.lock());
    Ok(Output {
        status: status.code(),
        stdout: take(&stdout),
        stderr: String::from_utf8_lossy(&take(&stderr)).trim_end().to_owned(),
    })
}

/// Why a program did not end as it should.
enum Wrong {
    TooLong,
    TooLarge,
    Lost(String),
}

impl Wrong {
    fn error(self, args: &[&str], max_output: usize, timeout: Duration) -> Error {
        let (code, what) = match self {
            Self::TooLong => ("E_TIMEOUT", format!("did not end within {} s", timeout.as_secs_f32())),
            Self::TooLarge => ("E_TOO_LARGE", format!("printed more than {max_output} bytes")),
            Self::Lost(why) => ("E_GIT", format!("is lost: {why}")),
        };
        Error::new(Category::Failed, code, named(args, &what))
    }
}

/// Waits for the end of the program and of its pipes. If something holds these open, they are at their end when nothing is `unread`, and
/// nothing comes for a while: what the program itself wrote was in them before it ended.
fn listen(
    told: &Receiver<Told>,
    mut pipes: u32,
    group: &mut Group,
    timeout: Duration,
    unread: &dyn Fn() -> bool,
) -> Result<ExitStatus, Wrong> {
    let mut status = None;
    let end = Instant::now() + timeout;
    // Bytes that were just taken from a pipe may still be on their way: one look is not enough.
    let mut quiet = 0;
    loop {
        if let (0, Some(status)) = (pipes, status) {
            return Ok(status);
        }
        let left = end.saturating_duration_since(Instant::now());
        match told.recv_timeout(if status.is_some() { GRACE } else { left }) {
            Ok(Told::Ended(ended)) => {
                // It is gone; its number may soon be another's.
                group.0 = None;
                status = Some(ended.map_err(|error| Wrong::Lost(error.to_string()))?);
            }
            Ok(Told::Read { everything: true }) => pipes -= 1,
            Ok(Told::Read { everything: false }) => return Err(Wrong::TooLarge),
            Err(RecvTimeoutError::Timeout) if status.is_none() => return Err(Wrong::TooLong),
            Err(RecvTimeoutError::Timeout) if unread() => {
                // Better no answer than half of one.
                if left.is_zero() {
                    return Err(Wrong::TooLong);
                }
                quiet = 0;
            }
            Err(RecvTimeoutError::Timeout) if quiet == 0 => quiet += 1,
            Err(_) => return status.ok_or_else(|| Wrong::Lost("its end was not told".to_owned())),
        }
    }
}

/// Reads a pipe on a thread of its own: all of it, or, if `end` is set, the end of it.
fn read(mut pipe: impl Read + Send + 'static, shared: &Shared, max: usize, end: bool, tell: Sender<Told>) {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        let mut everything = true;
        loop {
            let count = match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut kept = shared.lock();
            kept.extend_from_slice(&buffer[..count]);
            if kept.len() > max {
                if !end {
                    everything = false;
                    break;
                }
                let drop = kept.len() - max;
                kept.drain(..drop);
            }
        }
        let _ = tell.send(Told::Read { everything });
    });
}

fn named(args: &[&str], what: &str) -> String {
    // Settings come in pairs before the command.
    let mut rest = args.iter();
    while rest.as_slice().first() == Some(&"-c") {
        rest.nth(1);
    }
    let command = rest.find(|arg| !arg.starts_with('-')).unwrap_or(&"");
    format!("git {command} {what}")
}

pub(super) fn failed(args: &[&str], what: String) -> Error {
    Error::new(Category::Failed, "E_GIT", named(args, &what))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_reader_that_comes_to_it_late_is_waited_for() {
        let (tell, told) = channel();
        tell.send(Told::Ended(Command::new("true").status())).unwrap();
        let looks = Cell::new(0);
        // The third time something has come of it.
        let unread = || {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                tell.send(Told::Read { everything: true }).unwrap();
            }
            true
        };
        let ended = listen(&told, 1, &mut Group(None), Duration::from_secs(600), &unread);
        assert!(ended.is_ok_and(|status| status.success()));
        assert_eq!(looks.get(), 3);
    }

    #[test]
    fn half_of_an_answer_is_none() {
        let (tell, told) = channel();
        tell.send(Told::Ended(Command::new("true").status())).unwrap();
        let ended = listen(&told, 1, &mut Group(None), Duration::ZERO, &|| true);
        assert!(matches!(ended, Err(Wrong::TooLong)));
        tell.send(Told::Ended(Command::new("true").status())).unwrap();
        let ended = listen(&told, 1, &mut Group(None), Duration::from_secs(600), &|| false);
        assert!(ended.is_ok(), "something it left running holds the pipe");
    }
}
