//! Runs one program to its end, in a process group of its own that does not outlive the future.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Code, Error, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How much of the end of stderr is kept, in bytes; what went wrong stands in the last lines.
const STDERR_BYTES: usize = 16 << 10;

/// A program that ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its exit status; `None` if a signal killed it.
    pub(crate) status: Option<i32>,
    /// All that it printed.
    pub(crate) stdout: Vec<u8>,
    /// The end of what it complained about.
    pub(crate) stderr: String,
}

impl Finished {
    /// Says whether it exited with 0.
    pub(crate) fn succeeded(&self) -> bool {
        self.status == Some(0)
    }

    /// Says whether no signal killed it, nor a program that it ran and that it tells of.
    pub(super) fn ended_by_itself(&self) -> bool {
        self.status.is_some() && !self.stderr.contains(" died of signal ")
    }
}

/// A running program and everything it started. Dropping it kills them all.
pub(super) struct Group {
    pub(super) child: Child,
    leader: Option<Pid>,
}

impl Group {
    /// Starts a program in a group of its own, with all three pipes.
    ///
    /// # Errors
    /// `internal` if it cannot be started, `resource_exhausted` for want of memory.
    pub(super) fn spawn(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::OutOfMemory => Code::ResourceExhausted,
                _ => Code::Internal,
            };
            let program = command.as_std().get_program().to_string_lossy().into_owned();
            let message = format!("{program} cannot be started on this machine; is it installed?");
            Error::new(code, message).with_source(error)
        })?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, leader })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // Fails only if the group is gone already, which is what is wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Runs a program to its end.
///
/// # Errors
/// As [`Group::spawn`]; `timeout`; `too_large` if it prints more than `max_output`.
pub(super) async fn run(command: Command, stdin: Bytes, max_output: usize, longest: Duration) -> Result<Finished> {
    let mut group = Group::spawn(command)?;
    let gone = || Error::new(Code::Internal, "a program has no pipes");
    let mut input = group.child.stdin.take().ok_or_else(gone)?;
    let output = group.child.stdout.take().ok_or_else(gone)?;
    let noise = group.child.stderr.take().ok_or_else(gone)?;
    let lost = |error| Error::new(Code::Internal, "a program was lost").with_source(error);
    let work = async {
        let feed = async move {
            // A program need not read its input; a broken pipe is its choice.
            let _ = input.write_all(&stdin).await;
            Ok(())
        };
        let read = async {
            let mut stdout = Vec::new();
            output.take(max_output as u64 + 1).read_to_end(&mut stdout).await.map_err(lost)?;
            if stdout.len() > max_output {
                return Err(Error::new(Code::TooLarge, format!("git answered with more than {max_output} bytes")));
            }
            Ok(stdout)
        };
        let ((), stdout, stderr) = tokio::try_join!(feed, read, async { Ok(read_end(noise).await) })?;
        let status = group.child.wait().await.map_err(lost)?;
        Ok(Finished { status: status.code(), stdout, stderr })
    };
    match tokio::time::timeout(longest, work).await {
        Ok(finished) => finished,
        Err(_) => Err(Error::new(Code::Timeout, "git did not finish in time")),
    }
}

/// Reads to the end and keeps the last [`STDERR_BYTES`].
async fn read_end(mut pipe: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * STDERR_BYTES {
            kept.drain(..kept.len() - STDERR_BYTES);
        }
    }
    String::from_utf8_lossy(&kept[kept.len().saturating_sub(STDERR_BYTES)..]).into_owned()
}
