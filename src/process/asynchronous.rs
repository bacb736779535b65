//! Asynchronous interface, on tokio.

use std::io;
use std::process::{ExitStatus, Stdio};

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::capture::{Capture, Captured};
use crate::descriptors::close_descriptors_on_exec;
use crate::failure::{Failure, Finished};
use crate::group::GroupId;
use crate::reaper::{self, Reaped};

/// Process group of a running program. Dropping it kills the group.
#[derive(Debug)]
pub struct Group {
    child: Child,
    id: Option<GroupId>,
    /// Dropped after the group was killed.
    reaped: Option<Reaped>,
}

/// The pipes of a running program.
#[derive(Debug)]
pub struct Pipes {
    /// Standard input.
    pub stdin: ChildStdin,
    /// Standard output.
    pub stdout: ChildStdout,
    /// Standard error.
    pub stderr: ChildStderr,
}

impl Group {
    /// Starts a program as the leader of a new process group, with all three pipes.
    ///
    /// Open descriptors of this process are not inherited.
    ///
    /// # Errors
    /// Those of the system.
    pub fn spawn(command: &mut Command) -> io::Result<(Self, Pipes)> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        close_descriptors_on_exec();
        reaper::prepare();
        let mut child = command.spawn()?;
        let id = child.id().and_then(GroupId::of_leader);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Self {
            child,
            id,
            reaped: id.and_then(Reaped::new),
        };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("the program has no pipes"));
        };
        Ok((
            group,
            Pipes {
                stdin,
                stdout,
                stderr,
            },
        ))
    }

    /// The id of the group; `None` once the leader has been waited for.
    #[must_use]
    pub const fn id(&self) -> Option<GroupId> {
        self.id
    }

    /// Sends a signal to the whole group.
    pub fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            id.signal(signal);
        }
    }

    /// Kills the whole group.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits until the leader ends, then kills the rest of its group. Cancel safe.
    ///
    /// # Errors
    /// If the system has lost the leader.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        if let Some(id) = self.id.take() {
            // Its id may soon belong to another process, so no signal may be sent after this.
            id.kill();
            self.reaped = None;
        }
        status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program until it ends, and reads all its output.
///
/// Dropping the future kills the whole process group.
///
/// # Errors
/// [`Failure`]; never `TimedOut`: put a `timeout` around it.
pub async fn run(
    command: &mut Command,
    stdin: impl AsRef<[u8]>,
    stdout: Capture,
    stderr: Capture,
) -> Result<Finished, Failure> {
    let (mut group, pipes) = Group::spawn(command).map_err(Failure::Start)?;
    let fed = async {
        feed(pipes.stdin, &[stdin.as_ref()]).await;
        Ok(())
    };
    let ((), stdout, stderr) =
        tokio::try_join!(fed, read(pipes.stdout, stdout), read(pipes.stderr, stderr))?;
    let status = group.wait().await.map_err(Failure::Lost)?;
    Ok(Finished {
        status,
        stdout,
        stderr,
    })
}

/// Writes the input of a program, in parts, and closes the pipe.
///
/// A program does not have to read its input.
pub async fn feed(mut stdin: ChildStdin, input: &[&[u8]]) {
    for part in input {
        if stdin.write_all(part).await.is_err() {
            return;
        }
    }
    let _ = stdin.shutdown().await;
}

async fn read(mut pipe: impl AsyncRead + Unpin, capture: Capture) -> Result<Captured, Failure> {
    let mut kept = capture.start();
    let mut chunk = vec![0; 16 << 10];
    loop {
        match pipe.read(&mut chunk).await.map_err(Failure::Lost)? {
            0 => return Ok(kept.finish()),
            count if kept.push(&chunk[..count]) => {}
            _ => return Err(Failure::TooLarge(capture.limit())),
        }
    }
}

/// A program to start, and the receiver of the result.
type Order = (Command, oneshot::Sender<io::Result<(Group, Pipes)>>);

/// Starts programs from one thread that runs as long as this value exists.
///
/// A program with a parent-death signal (`PR_SET_PDEATHSIG`) dies with the thread that started it,
/// not with the process. Threads of a runtime may end while the program is needed.
#[derive(Debug, Clone)]
pub struct Spawner(std::sync::mpsc::Sender<Order>);

impl Spawner {
    /// Starts the thread.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(name: &str, runtime: Handle) -> io::Result<Self> {
        let (sender, receiver) = std::sync::mpsc::channel::<Order>();
        let work = move || {
            let _inside = runtime.enter();
            for (mut command, answer) in receiver {
                // If the caller is gone, the group is dropped here, which kills it.
                let _ = answer.send(Group::spawn(&mut command));
            }
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)?;
        Ok(Self(sender))
    }

    /// Starts a program as [`Group::spawn`] does.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn spawn(&self, command: Command) -> io::Result<(Group, Pipes)> {
        let gone = || io::Error::other("the thread that starts programs has ended");
        let (answer, started) = oneshot::channel();
        self.0.send((command, answer)).map_err(|_| gone())?;
        started.await.map_err(|_| gone())?
    }
}
