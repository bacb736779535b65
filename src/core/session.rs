//! Sessions: a private folder and sandboxed commands in it, for a limited time.
//!
//! What runs in a session is not trusted, and neither is anything that it wrote: a handler reads
//! such files as it would read a stranger's, and never runs a program over them outside the
//! session.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Timestamp;
use crate::error::Result;

/// A command to run in a session.
#[derive(Debug, Clone)]
pub struct Exec {
    /// Program and arguments; never a line for a shell unless the program is one.
    pub argv: Vec<String>,
    /// What it reads on stdin; empty unless said otherwise.
    pub stdin: Bytes,
    /// Variables added to the session's short environment.
    pub env: BTreeMap<String, String>,
    /// The folder that it starts in, below the session's own; empty = that itself.
    pub cwd: String,
    /// Time limit. Default 60 s, never longer than the lifetime of the session.
    pub timeout: Duration,
    /// Bytes kept of each of stdout and stderr: half from the start, half from the end. Default 1
    /// MiB.
    pub max_output: usize,
    /// Whether stderr goes into stdout, in the order in which they were written.
    pub merge_stderr: bool,
}

impl Exec {
    /// Makes a command with an empty stdin, no more variables, in the session's own folder.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            stdin: Bytes::new(),
            env: BTreeMap::new(),
            cwd: String::new(),
            timeout: Duration::from_secs(60),
            max_output: 1 << 20,
            merge_stderr: false,
        }
    }
}

/// What a command wrote to one of its outputs: all of it, or its start and its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// From the start on.
    pub head: Vec<u8>,
    /// Up to the end; empty if `head` is all.
    pub tail: Vec<u8>,
    /// How many bytes between the two were not kept.
    pub left_out: u64,
}

impl Captured {
    /// Returns everything if everything was kept.
    #[must_use]
    pub fn all(self) -> Option<Vec<u8>> {
        let Self {
            mut head,
            tail,
            left_out,
        } = self;
        head.extend_from_slice(&tail);
        (left_out == 0).then_some(head)
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status. Other than 0 is no error of the session.
    Exited(i32),
    /// Killed by a signal from outside helmdeck.
    Signalled(i32),
    /// It took longer than it may and was killed, with all that it started.
    TimedOut,
    /// It and what it started took more memory than the session may and were killed.
    OutOfMemory,
    /// It filled the session's folder beyond what it may hold and was killed.
    OutOfDisk,
}

/// A command that ended.
#[derive(Debug, Clone)]
pub struct Executed {
    /// What it wrote to stdout.
    pub stdout: Captured,
    /// What it wrote to stderr; empty if that was merged.
    pub stderr: Captured,
    /// How the command ended.
    pub ended: Ended,
    /// How long it took.
    pub duration: Duration,
}

/// A session of this call's caller.
///
/// Commands see two folders: [`Session::folder`], which they may change, and [`Session::supplies`],
/// which they may only read. Inside they have other paths than outside.
#[async_trait]
pub trait Session: Send + Sync {
    /// Returns its id.
    fn id(&self) -> &str;

    /// Returns the folder that commands may change, as a path of this process. Do not trust its
    /// content.
    fn folder(&self) -> &Path;

    /// Returns a folder that only this process may change and commands may read, as this process
    /// sees it.
    fn supplies(&self) -> &Path;

    /// Returns the path of [`Session::folder`] as commands see it.
    fn folder_inside(&self) -> &str;

    /// Returns the path of [`Session::supplies`] as commands see it.
    fn supplies_inside(&self) -> &str;

    /// Returns when it ends.
    fn expires_at(&self) -> Timestamp;

    /// Runs a command and waits until it ends.
    ///
    /// Nothing that it started outlives it. Dropping the future kills it.
    ///
    /// # Errors
    /// `session_unavailable` if the session has ended or the command cannot start because there is
    /// no sandbox; `invalid_input` for an empty command or a folder that is not below the
    /// session's; `resource_exhausted` if this machine is out of a resource. A missing program
    /// exits with status 127, as in a shell.
    async fn exec(&self, command: Exec) -> Result<Executed>;
}
