//! Runs git and OpenSSH to their end, in their own process groups.

use std::time::Duration;

use helmdeck_core::{Code, Error, Result};
use helmdeck_process::{Capture, Failure, Group, Pipes};
use tokio::process::Command;

/// Maximum length kept of the end of stderr, in bytes: the reason for a failure is in the last
/// lines.
const STDERR_BYTES: usize = 16 << 10;

/// A program that ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its exit status; `None` if a signal killed it.
    pub(crate) status: Option<i32>,
    /// Its whole standard output.
    pub(crate) stdout: Vec<u8>,
    /// The end of its standard error.
    pub(crate) stderr: String,
}

impl Finished {
    /// Returns whether it exited with 0.
    pub(crate) fn succeeded(&self) -> bool {
        self.status == Some(0)
    }

    /// Returns whether no signal killed git, nor a program that it started and reported.
    pub(super) fn ended_by_itself(&self) -> bool {
        self.status.is_some() && !self.stderr.contains(" died of signal ")
    }
}

/// Starts a program that runs until the returned group is dropped or its standard input is closed.
///
/// # Errors
/// `internal` if it cannot be started, `resource_exhausted` if there is not enough memory.
pub(super) fn spawn(mut command: Command) -> Result<(Group, Pipes)> {
    Group::spawn(&mut command).map_err(|error| cannot_start(&command, error))
}

fn cannot_start(command: &Command, error: std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::OutOfMemory => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    let program = command.as_std().get_program().to_string_lossy();
    Error::new(
        code,
        format!("{program} cannot be started on this machine; is it installed?"),
    )
    .with_source(error)
}

/// Runs a program to its end.
///
/// # Errors
/// As [`spawn`]; `timeout`; `too_large` if it prints more than `max_output`.
pub(super) async fn run(
    mut command: Command,
    stdin: impl AsRef<[u8]>,
    max_output: usize,
    longest: Duration,
) -> Result<Finished> {
    let run = helmdeck_process::run(
        &mut command,
        stdin,
        Capture::all(max_output),
        Capture::tail(STDERR_BYTES),
    );
    match tokio::time::timeout(longest, run).await {
        Ok(Ok(finished)) => Ok(Finished {
            status: finished.status.code(),
            stdout: finished.stdout.into_bytes(),
            stderr: finished.stderr.into_text(),
        }),
        Ok(Err(Failure::Start(error))) => Err(cannot_start(&command, error)),
        Ok(Err(Failure::TooLarge(limit))) => Err(Error::new(
            Code::TooLarge,
            format!("git answered with more than {limit} bytes"),
        )),
        Ok(Err(failure)) => {
            Err(Error::new(Code::Internal, "a program was lost").with_source(failure))
        }
        Err(_) => Err(Error::new(Code::Timeout, "git did not finish in time")),
    }
}
