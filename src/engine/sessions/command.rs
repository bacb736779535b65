//! One running command: started, fed, read, watched and, however it ends, killed with everything that it started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use helmdeck_core::session::{Captured, Ended, Exec, Executed};
use helmdeck_core::{Code, Error, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::output::Output;
use super::sandbox::Line;
use super::stage::STARTED;
use super::{disk, processes};
use crate::descriptors::close_descriptors_on_exec;

/// How often the memory of a command is looked at.
const MEMORY_LOOK: Duration = Duration::from_millis(200);
/// How many looks at its memory there are for one at its folder.
const DISK_LOOK: u32 = 5;
/// How many looks in a row may fail.
const MAX_UNSEEN: u32 = 5;
/// How often what is being killed is looked for.
const KILL_LOOK: Duration = Duration::from_millis(10);
/// How long the sandbox is given to end after everything in it was killed; then it is killed itself.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How long the last output may take once everybody who could write has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

/// What a command may take, and where that is looked at.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    pub(super) memory: u64,
    pub(super) disk: u64,
    /// The session's folder.
    pub(super) folder: PathBuf,
    /// What commands may only read; it counts as well.
    pub(super) supplies: PathBuf,
    /// Whom files of root in it are given to.
    pub(super) owner: Option<u32>,
    pub(super) timeout: Duration,
}

/// Starts programs from one thread, which lives as long as this: what is started dies with the thread that started it.
#[derive(Debug, Clone)]
pub(super) struct Starter(std::sync::mpsc::Sender<(Command, oneshot::Sender<io::Result<Child>>)>);

impl Starter {
    /// Starts the thread.
    ///
    /// # Errors
    /// Of the system.
    pub(super) fn new(runtime: Handle) -> io::Result<Self> {
        let (sender, receiver) = std::sync::mpsc::channel::<(Command, oneshot::Sender<io::Result<Child>>)>();
        let work = move || {
            let _inside = runtime.enter();
            for (mut command, answer) in receiver {
                // Whoever asked may be gone; then the child is dropped, which kills it.
                close_descriptors_on_exec();
                let _ = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("helmdeck-sessions".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }

    async fn start(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts programs has ended");
        let (answer, child) = oneshot::channel();
        self.0.send((command, answer)).map_err(|_| gone())?;
        child.await.map_err(|_| gone())?
    }
}

/// A started command. Dropped while it runs, it is killed by a task of its own, which holds `turn` until all is over.
struct Running<T: Send + 'static> {
    child: Option<Child>,
    turn: Option<T>,
    tasks: TaskTracker,
}

impl<T: Send + 'static> Drop for Running<T> {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let turn = self.turn.take();
        let Ok(runtime) = Handle::try_current() else { return };
        self.tasks.spawn_on(
            async move {
                kill(&mut child).await;
                drop(turn);
            },
            &runtime,
        );
    }
}

/// Runs a command to its end. `turn` is held until nothing of it is left, also when the future is dropped.
///
/// # Errors
/// `session_unavailable` if it could not be started, or `stop` was called; `invalid_input` if it is too long for the system.
pub(super) async fn run<T: Send + 'static>(
    starter: &Starter,
    line: Line,
    command: &Exec,
    allowed: Allowed,
    stop: &CancellationToken,
    tasks: &TaskTracker,
    turn: T,
) -> Result<Executed> {
    let started = Instant::now();
    let before = tokio::select! {
        before = look_at_disk(&allowed) => before?,
        () = tokio::time::sleep_until((started + allowed.timeout).into()) => Some(Ended::TimedOut),
        () = stop.cancelled() => return Err(over()),
    };
    if let Some(ended) = before {
        let nothing = || Captured::default();
        return Ok(Executed { stdout: nothing(), stderr: nothing(), ended, duration: started.elapsed() });
    }
    let Line { argv, before } = line;
    let child = starter.start(program(argv)).await.map_err(cannot_start)?;
    let mut running = Running { child: Some(child), turn: Some(turn), tasks: tasks.clone() };
    let Some(child) = running.child.as_mut() else { return Err(lost()) };
    let (Some(stdin), Some(stdout), Some(mut stderr), Some(root)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take(), pid(child))
    else {
        return Err(lost());
    };
    let (out, err) = (Output::new(command.max_output), Output::new(command.max_output.saturating_add(1)));
    let pipes = async {
        let first = first_byte(&mut stderr).await;
        // Sent only to a sandbox that stands: if helmdeck is killed before, no command ever runs.
        let input = if first.first() == Some(&STARTED) { before } else { Vec::new() };
        let stderr = (&first[..]).chain(stderr);
        tokio::join!(feed(stdin, input, command.stdin.clone()), out.read(stdout), err.read(stderr))
    };
    let mut pipes = std::pin::pin!(pipes);
    let mut watch = std::pin::pin!(watch(root, allowed, started));
    let mut read_all = false;
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status.map_err(cannot_start)?,
            _ = &mut pipes, if !read_all => read_all = true,
            ended = &mut watch => {
                kill(child).await;
                break_with(&mut running, &mut pipes, read_all).await;
                return Ok(executed(&out, &err, ended, started).0);
            }
            () = stop.cancelled() => {
                kill(child).await;
                break_with(&mut running, &mut pipes, read_all).await;
                return Err(over());
            }
        }
    };
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        // Somebody killed the outermost process, which takes its sandbox with it. Without one, its group is what can be found.
        (None, signal) => {
            let _ = kill_process_group(root, Signal::KILL);
            Ended::Signalled(signal.unwrap_or(0))
        }
    };
    break_with(&mut running, &mut pipes, read_all).await;
    match executed(&out, &err, ended, started) {
        (executed, true) => Ok(executed),
        (executed, false) => {
            let said = String::from_utf8_lossy(&executed.stderr.head).trim().to_owned();
            let message = "the sandbox of the command cannot be made; `helmdeck check` says what is missing";
            Err(Error::new(Code::SessionUnavailable, message).with_source(said))
        }
    }
}

/// Takes note that the command has ended, and reads what is left of its output.
async fn break_with<T: Send + 'static, R>(
    running: &mut Running<T>,
    pipes: &mut std::pin::Pin<&mut impl Future<Output = R>>,
    read_all: bool,
) {
    running.child = None;
    if !read_all {
        let _ = tokio::time::timeout(LAST_OUTPUT, pipes).await;
    }
}

/// Puts the result together; says too whether the command was ever reached.
fn executed(out: &Output, err: &Output, ended: Ended, started: Instant) -> (Executed, bool) {
    let mut stderr = err.take();
    let reached = stderr.head.first() == Some(&STARTED);
    if reached {
        stderr.head.remove(0);
    }
    (Executed { stdout: out.take(), stderr, ended, duration: started.elapsed() }, reached)
}

fn program(argv: Vec<OsString>) -> Command {
    let mut words = argv.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command
        .args(words)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

fn cannot_start(error: io::Error) -> Error {
    let (code, message) = match error.kind() {
        io::ErrorKind::ArgumentListTooLong => {
            (Code::InvalidInput, "the command is longer than this system takes; put what is long into a file or stdin")
        }
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
            (Code::ResourceExhausted, "this machine has no room for one more process")
        }
        _ => (Code::SessionUnavailable, "the command cannot be started"),
    };
    Error::new(code, message).with_source(error)
}

fn over() -> Error {
    Error::new(Code::SessionUnavailable, "the session has ended")
}

fn lost() -> Error {
    Error::new(Code::Internal, "the command has no pipes")
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Reads the first byte, or nothing at the end.
async fn first_byte(pipe: &mut ChildStderr) -> Vec<u8> {
    let mut first = vec![0];
    let read = pipe.read(&mut first).await.unwrap_or(0);
    first.truncate(read);
    first
}

async fn feed(mut stdin: ChildStdin, before: Vec<u8>, input: Bytes) {
    // A command need not read its input; a broken pipe is its choice, not a failure.
    let _ = stdin.write_all(&before).await;
    let _ = stdin.write_all(&input).await;
    let _ = stdin.shutdown().await;
}

/// Waits until the command has taken more than it may.
async fn watch(root: Pid, allowed: Allowed, started: Instant) -> Ended {
    let late = tokio::time::sleep_until((started + allowed.timeout).into());
    let mut late = std::pin::pin!(late);
    let looks = async {
        let mut unseen = 0;
        for look in 1_u32.. {
            tokio::time::sleep(MEMORY_LOOK).await;
            match look_at(root, &allowed, look % DISK_LOOK == 0).await {
                Ok(Some(ended)) => return ended,
                Ok(None) if look % DISK_LOOK == 0 => unseen = 0,
                Ok(None) => {}
                // This machine may be short of something for a moment. What stays unseen counts as too much.
                Err(_) if unseen < MAX_UNSEEN => unseen += 1,
                Err(error) => {
                    tracing::warn!(%error, "the folder of a session cannot be looked at");
                    return Ended::OutOfDisk;
                }
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        () = &mut late => Ended::TimedOut,
        ended = looks => ended,
    }
}

async fn look_at(root: Pid, allowed: &Allowed, disk: bool) -> io::Result<Option<Ended>> {
    let allowed = allowed.clone();
    looking(move |stop| {
        use std::os::unix::fs::MetadataExt;
        let device = std::fs::symlink_metadata(&allowed.folder).map_or(0, |about| about.dev());
        let usage = processes::usage(root, device, allowed.memory);
        if usage.memory > allowed.memory {
            return Ok(Some(Ended::OutOfMemory));
        }
        let folders = if disk { on_disk(&allowed, None, stop)? } else { 0 };
        Ok((folders.saturating_add(usage.nameless) > allowed.disk).then_some(Ended::OutOfDisk))
    })
    .await
}

/// Looks whether the folders are full before anything runs, and makes what helmdeck put into the session's own the command's.
async fn look_at_disk(allowed: &Allowed) -> Result<Option<Ended>> {
    let allowed = allowed.clone();
    let used = looking(move |stop| Ok(on_disk(&allowed, allowed.owner, stop)? > allowed.disk)).await;
    match used {
        Ok(full) => Ok(full.then_some(Ended::OutOfDisk)),
        Err(error) => {
            Err(Error::new(Code::SessionUnavailable, "the folder of the session cannot be looked at")
                .with_source(error))
        }
    }
}

/// Adds up what the folders of a session hold.
fn on_disk(allowed: &Allowed, owner: Option<u32>, stop: &AtomicBool) -> io::Result<u64> {
    let folder = disk::usage(&allowed.folder, allowed.disk, owner, stop)?;
    let left = allowed.disk.saturating_sub(folder);
    Ok(folder.saturating_add(disk::usage(&allowed.supplies, left, None, stop)?))
}

/// Looks at something on another thread, which stops soon after nobody waits for it any more.
async fn looking<T: Send + 'static>(look: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let _waiting = Waiting(Arc::clone(&stop));
    tokio::task::spawn_blocking(move || look(&stop)).await.map_err(io::Error::other)?
}

/// Says so when it is dropped.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills a command with everything that it started, and waits until all of it is gone.
///
/// The outermost process collects whatever is left without a parent, and ends when nothing is. So what is below it is killed until
/// it has ended; killed itself, it could not say so.
async fn kill(child: &mut Child) {
    let Some(root) = pid(child) else { return };
    let kill_below = async {
        loop {
            let below = move || processes::children(root).into_iter().for_each(|pid| processes::kill_child(pid, root));
            let _ = tokio::task::spawn_blocking(below).await;
            if tokio::time::timeout(KILL_LOOK, child.wait()).await.is_ok() {
                return;
            }
        }
    };
    if tokio::time::timeout(KILL_LIMIT, kill_below).await.is_err() {
        tracing::warn!("a command of a session does not end although it was killed");
        let _ = child.kill().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_ends_when_nobody_waits_for_it_any_more() {
        let (began, begun) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        let look = looking(move |stop| {
            began.send(()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            ends.send(()).unwrap();
            Ok(())
        });
        tokio::select! {
            _ = look => panic!("it ended by itself"),
            began = begun => began.unwrap(),
        }
        ended.await.unwrap();
    }
}
