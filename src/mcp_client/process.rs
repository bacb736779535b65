//! MCP servers that are programs: their start with a minimal environment, and their shutdown.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use helmdeck_core::{Code, Error, Result};
use helmdeck_process::{Group, Pipes, Signal};
use tokio::process::Command;

/// How long a program may take to end after its stdin was closed, and again after SIGTERM.
///
/// See MCP 2025-11-25, "Lifecycle: Shutdown".
const GRACE: Duration = Duration::from_millis(500);

/// How long a program may run after the end of its output.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// A program with its arguments and environment.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    /// Search path of the program and of the programs that it starts.
    pub(crate) path: String,
    pub(crate) env: Vec<(String, String)>,
}

impl Program {
    /// Starts the program.
    ///
    /// # Errors
    /// `handler_failed` if it cannot be started; `resource_exhausted` if the system has no memory
    /// for it.
    pub(crate) fn spawn(&self) -> Result<(Group, Pipes)> {
        let (name, arguments) = self.argv.split_first().ok_or_else(|| {
            Error::new(
                Code::HandlerFailed,
                "the command of the MCP server is empty",
            )
        })?;
        // The operator's value wins. The program is searched in the path that it will use itself.
        let own = self
            .env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, path)| path);
        let program = find(
            name,
            own.unwrap_or(&self.path),
            self.cwd.as_deref(),
            own.is_some(),
        )?;
        let mut command = helmdeck_process::command(&program, &self.path);
        command
            .args(arguments)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        Group::spawn(&mut Command::from(command)).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::OutOfMemory => Code::ResourceExhausted,
                _ => Code::HandlerFailed,
            };
            Error::new(code, format!("{} cannot be started", program.display())).with_source(error)
        })
    }
}

/// Finds a program.
///
/// With `own`, the search path comes from the server's `env`, whose values are not shown.
fn find(name: &str, path: &str, cwd: Option<&Path>, own: bool) -> Result<PathBuf> {
    let missing = |message: String| Error::new(Code::HandlerFailed, message);
    if name.contains('/') {
        let program = cwd.map_or_else(|| PathBuf::from(name), |cwd| cwd.join(name));
        return match program.is_file() {
            true => Ok(program),
            false => Err(missing(format!(
                "the program {} does not exist",
                program.display()
            ))),
        };
    }
    helmdeck_process::find(name, path).ok_or_else(|| match own {
        true => missing(format!(
            "the program \"{name}\" is not in the search path that its `env` gives"
        )),
        false => missing(format!(
            "the program \"{name}\" is not in the search path {path}"
        )),
    })
}

/// Kills a program whose output has ended. Returns its exit status; `None` if it was still running.
pub(crate) async fn kill(mut group: Group) -> Option<ExitStatus> {
    // A program's output ends a moment before the program.
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

/// Shuts a program down: waits, sends SIGTERM, and kills it. Its stdin must be closed already.
pub(crate) async fn end(mut group: Group) {
    if tokio::time::timeout(GRACE, group.wait()).await.is_err() {
        group.signal(Signal::TERM);
        let _ = tokio::time::timeout(GRACE, group.wait()).await;
    }
    group.kill();
}

/// Describes how a program ended.
pub(crate) fn how(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("it exited with status {code}"),
        Some((None, Some(signal))) => format!("it was killed by signal {signal}"),
        _ => "it closed its output".to_owned(),
    }
}
