//! A server that is a program: started in a process group of its own with a short environment, and ended with its group.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use helmdeck_core::{Code, Error, Result};
use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use crate::descriptors::close_descriptors_on_exec;
use crate::group::Group;

/// How long a program may take to end by itself after its stdin was closed, and again after SIGTERM (MCP 2025-11-25,
/// "Lifecycle: Shutdown").
const GRACE: Duration = Duration::from_millis(500);

/// How long the end of a program may take after the end of its output.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// What is started.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    /// The search path, for the program and for what it starts.
    pub(crate) path: String,
    pub(crate) env: Vec<(String, String)>,
}

/// The pipes of a program.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Program {
    /// Starts the program.
    ///
    /// # Errors
    /// `handler_failed` with what cannot be started; `resource_exhausted` if the system has no room.
    pub(crate) fn spawn(&self) -> Result<(Group, Pipes)> {
        let (name, arguments) = self
            .argv
            .split_first()
            .ok_or_else(|| Error::new(Code::HandlerFailed, "the command of the MCP server is empty"))?;
        // What the operator sets wins; the program is looked for where it will itself look.
        let own = self.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path);
        let program = find(name, own.unwrap_or(&self.path), self.cwd.as_deref(), own.is_some())?;
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", &self.path)
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        close_descriptors_on_exec();
        let mut child = command.spawn().map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::OutOfMemory => Code::ResourceExhausted,
                _ => Code::HandlerFailed,
            };
            Error::new(code, format!("{} cannot be started", program.display())).with_source(error)
        })?;
        let gone = || Error::new(Code::Internal, "the program has no pipes");
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let stdout = child.stdout.take().ok_or_else(gone)?;
        let stderr = child.stderr.take().ok_or_else(gone)?;
        Ok((Group::new(child), Pipes { stdin, stdout, stderr }))
    }
}

/// `own` says that the search path is a value of the server's `env`, which is not repeated.
fn find(name: &str, path: &str, cwd: Option<&Path>, own: bool) -> Result<PathBuf> {
    let missing = |message: String| Error::new(Code::HandlerFailed, message);
    if name.contains('/') {
        let program = cwd.map_or_else(|| PathBuf::from(name), |cwd| cwd.join(name));
        return match program.is_file() {
            true => Ok(program),
            false => Err(missing(format!("the program {} does not exist", program.display()))),
        };
    }
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|program| program.is_file())
        .ok_or_else(|| match own {
            true => missing(format!("the program \"{name}\" is not in the search path that its `env` gives")),
            false => missing(format!("the program \"{name}\" is not in the search path {path}")),
        })
}

/// Kills what is left of a program, and says how its leader ended; `None` if it had closed its output and lived on.
pub(crate) async fn kill(mut group: Group) -> Option<ExitStatus> {
    // Its output ends a moment before it does.
    let ended = tokio::time::timeout(LAST_MOMENT, group.wait()).await;
    group.kill();
    match ended {
        Ok(status) => status.ok(),
        Err(_) => {
            let _ = group.wait().await;
            None
        }
    }
}

/// Waits for a program to end, asks it to, and then does not ask any more. Its stdin must be closed already.
pub(crate) async fn end(mut group: Group) {
    if tokio::time::timeout(GRACE, group.wait()).await.is_err() {
        group.signal(Signal::TERM);
        let _ = tokio::time::timeout(GRACE, group.wait()).await;
    }
    group.kill();
}

/// Says how a program ended.
pub(crate) fn how(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("it exited with status {code}"),
        Some((None, Some(signal))) => format!("it was killed by signal {signal}"),
        _ => "it closed its output".to_owned(),
    }
}
