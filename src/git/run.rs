//! Runs git to its end: in its own process group, with a time limit and bounded output.

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_process::blocking::{self, Options};
use helmdeck_process::{Capture, Failure, blocking::Output as Target};

use crate::error::{Error, Kind, Result};

/// How much of the end of stderr is kept, in bytes: the reason for a failure is in the last lines.
const STDERR_BYTES: usize = 16 << 10;

/// Variables that redirect git or change what it prints.
///
/// The author (`GIT_AUTHOR_NAME`), the location of settings (`GIT_CONFIG_GLOBAL`) and the way ssh
/// is started stay as the user has them.
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

/// Settings of every run: no other program is started, and the output has no colours and no pager.
const SETTINGS: &[&str] = &[
    "core.fsmonitor=false",
    "color.ui=false",
    "log.showSignature=false",
    "core.quotePath=false",
    "diff.autoRefreshIndex=false",
];

/// Options of one run of git.
#[derive(Debug, Clone)]
pub struct Run {
    /// The input; empty by default.
    pub stdin: Vec<u8>,
    /// The time limit; [`Git::timeout`](crate::Git::timeout) by default.
    ///
    /// After it, git is killed with everything that it started.
    pub timeout: Option<Duration>,
    /// The limit for the output, in bytes; 64 MiB by default.
    pub max_output: usize,
    /// Variables in addition to those that every run gets.
    pub environment: Vec<(String, OsString)>,
    /// The folder to run in; the root of the work tree by default.
    pub folder: Option<PathBuf>,
    /// Whether hooks of the user run; false by default, true for commits and pushes.
    pub hooks: bool,
    /// A file that gets the output instead, without a limit.
    pub to: Option<Arc<File>>,
    /// Whether it may write. Default: false.
    ///
    /// A command that must not write takes no optional lock and does not refresh the index.
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
    /// Returns the options of a run that writes.
    #[must_use]
    pub fn writing() -> Self {
        Self {
            writes: true,
            ..Self::default()
        }
    }

    /// Lets hooks run.
    #[must_use]
    pub fn with_hooks(mut self) -> Self {
        self.hooks = true;
        self
    }

    /// Sets the input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Sets the time limit.
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

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit code; `None` if a signal killed it.
    pub status: Option<i32>,
    /// The whole output.
    pub stdout: Vec<u8>,
    /// The end of the error output, at most 16 KiB.
    pub stderr: String,
}

impl Output {
    /// Says whether it exited with 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.status == Some(0)
    }

    /// Returns the parts of the output between NUL bytes, without empty ones.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.stdout
            .split(|byte| *byte == 0)
            .filter(|record| !record.is_empty())
    }

    /// Returns the output as text, without white space at the end.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

/// Runs git.
pub(crate) fn run(
    root: &Path,
    environment: &[(String, OsString)],
    usual: Duration,
    args: &[&str],
    run: &Run,
) -> Result<Output> {
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
        .envs(
            environment
                .iter()
                .chain(&run.environment)
                .map(|(name, value)| (name, value)),
        );
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    if !run.hooks {
        command.args(["-c", "core.hooksPath=/dev/null"]);
    }
    let folder = run.folder.as_deref().unwrap_or(root);
    command.args(args).current_dir(folder);
    let stderr = Capture::tail(STDERR_BYTES);
    let output = match &run.to {
        Some(file) => {
            let file = file.try_clone();
            Target::File {
                stdout: file
                    .map_err(|error| failed(args, format!("cannot be started: {error}")))?,
                stderr,
            }
        }
        None => Target::Separate {
            stdout: Capture::all(run.max_output),
            stderr,
        },
    };
    let timeout = run.timeout.unwrap_or(usual);
    let options = Options {
        stdin: &run.stdin,
        output,
        timeout,
        kill_leftovers: false,
        running: None,
        tick: Duration::MAX,
    };
    let ended = blocking::run(&mut command, options, &mut || ());
    let (code, what) = match ended {
        Ok(finished) => {
            return Ok(Output {
                status: finished.status.code(),
                stdout: finished.stdout.into_bytes(),
                stderr: finished.stderr.into_text().trim_end().to_owned(),
            });
        }
        Err(Failure::Start(error)) if error.kind() == ErrorKind::NotFound && folder.is_dir() => {
            return Err(
                Error::new(Kind::Failed, "E_NO_GIT", "the program git is not found")
                    .hint("install git, or put it in PATH"),
            );
        }
        Err(Failure::Start(error)) => ("E_GIT", format!("cannot be started: {error}")),
        Err(Failure::Lost(error)) => ("E_GIT", format!("is lost: {error}")),
        Err(Failure::TooLarge(limit)) => {
            ("E_TOO_LARGE", format!("printed more than {limit} bytes"))
        }
        Err(Failure::TimedOut(..)) => (
            "E_TIMEOUT",
            format!("did not end within {} s", timeout.as_secs_f32()),
        ),
    };
    Err(Error::new(Kind::Failed, code, named(args, &what)))
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

pub(crate) fn failed(args: &[&str], what: String) -> Error {
    Error::new(Kind::Failed, "E_GIT", named(args, &what))
}
