//! A running command of a session: its start, its input and output, and its limits.
//!
//! A kill ends everything that the command started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use helmdeck_core::session::{Captured, Ended, Exec, Executed};
use helmdeck_core::{Code, Error, Result};
use helmdeck_process::{Group, GroupId, Pipes, Spawner, feed};
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cgroup::Cgroup;
use super::output::Output;
use super::sandbox::Line;
use super::stage::STARTED;
use super::{disk, image, processes};

/// Interval of checks of a command's memory.
const MEMORY_LOOK: Duration = Duration::from_millis(200);
/// Number of memory checks per check of the folder.
const DISK_LOOK: u32 = 5;
/// Limit of consecutive failed checks.
const MAX_UNSEEN: u32 = 5;
/// Interval at which the processes of a command are listed while it is being killed.
const KILL_LOOK: Duration = Duration::from_millis(10);
/// How long the sandbox may take to end after everything in it was killed. Then it is killed
/// itself.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How long the last output may take after every process that could write has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

/// The limits of a command, and where its use is measured.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    /// `None`: it is not measured, because a cgroup limits it, or nothing has to.
    pub(super) memory: Option<u64>,
    pub(super) disk: u64,
    /// The session's folder.
    pub(super) folder: PathBuf,
    /// The folder that commands can only read. It counts towards `disk`.
    pub(super) supplies: PathBuf,
    /// User that becomes the owner of root's files in the session's folder.
    pub(super) owner: Option<u32>,
    pub(super) timeout: Duration,
}

/// A started command.
///
/// If it is dropped while it runs, a task kills it and holds `turn` until that is done.
struct Running<T: Send + 'static> {
    group: Option<Group>,
    cgroup: Option<Arc<Cgroup>>,
    turn: Option<T>,
    tasks: TaskTracker,
}

impl<T: Send + 'static> Drop for Running<T> {
    fn drop(&mut self) {
        let Some(mut group) = self.group.take() else {
            return;
        };
        let (turn, cgroup) = (self.turn.take(), self.cgroup.take());
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        self.tasks.spawn_on(
            async move {
                kill(&mut group, cgroup.as_ref()).await;
                end(cgroup).await;
                drop(turn);
            },
            &runtime,
        );
    }
}

/// What a command needs to run.
pub(super) struct Run<'a> {
    pub(super) spawner: &'a Spawner,
    pub(super) line: Line,
    pub(super) allowed: Allowed,
    /// The cgroup that `line` enters.
    pub(super) cgroup: Option<Cgroup>,
    /// Ends the command.
    pub(super) stop: &'a CancellationToken,
    pub(super) tasks: &'a TaskTracker,
}

/// Runs a command until it ends.
///
/// `turn` is held until all its processes are gone, even if the future is dropped.
///
/// # Errors
/// `session_unavailable` if it could not be started, or `stop` was called; `invalid_input` if it is
/// too long for the system.
pub(super) async fn run<T: Send + 'static>(
    run: Run<'_>,
    command: &Exec,
    turn: T,
) -> Result<Executed> {
    let Run {
        spawner,
        line,
        allowed,
        cgroup,
        stop,
        tasks,
    } = run;
    let cgroup = cgroup.map(Arc::new);
    let started = Instant::now();
    let before = tokio::select! {
        before = look_at_disk(&allowed) => before?,
        () = tokio::time::sleep_until((started + allowed.timeout).into()) => Some(Ended::TimedOut),
        () = stop.cancelled() => return Err(over()),
    };
    if let Some(ended) = before {
        let nothing = || Captured::default();
        return Ok(Executed {
            stdout: nothing(),
            stderr: nothing(),
            ended,
            duration: started.elapsed(),
        });
    }
    let Line { argv, before } = line;
    let (group, pipes) = spawner.spawn(program(argv)).await.map_err(cannot_start)?;
    let Pipes {
        stdin,
        stdout,
        mut stderr,
    } = pipes;
    let mut running = Running {
        group: Some(group),
        cgroup,
        turn: Some(turn),
        tasks: tasks.clone(),
    };
    let cgroup = running.cgroup.clone();
    let Some((root, group)) = running
        .group
        .as_mut()
        .and_then(|group| Some((pid(group)?, group)))
    else {
        return Err(Error::new(Code::Internal, "the command has no process id"));
    };
    let (out, err) = (
        Output::new(command.max_output),
        Output::new(command.max_output.saturating_add(1)),
    );
    let pipes = async {
        let first = first_byte(&mut stderr).await;
        // Sent only to a sandbox that is ready: if helmdeck is killed before, no command ever runs.
        let before = if first.first() == Some(&STARTED) {
            before
        } else {
            Vec::new()
        };
        let input: [&[u8]; 2] = [&before, &command.stdin];
        let stderr = (&first[..]).chain(stderr);
        tokio::join!(feed(stdin, &input), out.read(stdout), err.read(stderr))
    };
    let mut pipes = std::pin::pin!(pipes);
    let mut watch = std::pin::pin!(watch(root, allowed, started));
    let mut read_all = false;
    let status = loop {
        tokio::select! {
            biased;
            status = group.wait() => break status.map_err(cannot_start)?,
            _ = &mut pipes, if !read_all => read_all = true,
            ended = &mut watch => {
                kill(group, cgroup.as_ref()).await;
                break_with(&mut running, &mut pipes, read_all).await;
                return Ok(executed(&out, &err, ended, started).0);
            }
            () = stop.cancelled() => {
                kill(group, cgroup.as_ref()).await;
                break_with(&mut running, &mut pipes, read_all).await;
                return Err(over());
            }
        }
    };
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        // The outermost process was killed, which ends its sandbox. Without a sandbox, `wait` has
        // killed its process group.
        (None, signal) => Ended::Signalled(signal.unwrap_or(0)),
    };
    let ended = match &cgroup {
        Some(cgroup) if ran_out_of_memory(cgroup).await => Ended::OutOfMemory,
        _ => ended,
    };
    break_with(&mut running, &mut pipes, read_all).await;
    match executed(&out, &err, ended, started) {
        (executed, reached) if reached || ended == Ended::OutOfMemory => Ok(executed),
        (executed, _) => {
            let said = String::from_utf8_lossy(&executed.stderr.head)
                .trim()
                .to_owned();
            let message =
                "the sandbox of the command cannot be made; `helmdeck check` says what is missing";
            Err(Error::new(Code::SessionUnavailable, message).with_source(said))
        }
    }
}

/// Records the end of the command, removes its cgroup, and reads the rest of its output.
async fn break_with<T: Send + 'static, R>(
    running: &mut Running<T>,
    pipes: &mut std::pin::Pin<&mut impl Future<Output = R>>,
    read_all: bool,
) {
    running.group = None;
    end(running.cgroup.take()).await;
    if !read_all {
        let _ = tokio::time::timeout(LAST_OUTPUT, pipes).await;
    }
}

/// Returns the result, and whether the command itself was ever started.
fn executed(out: &Output, err: &Output, ended: Ended, started: Instant) -> (Executed, bool) {
    let mut stderr = err.take();
    let reached = stderr.head.first() == Some(&STARTED);
    if reached {
        stderr.head.remove(0);
    }
    (
        Executed {
            stdout: out.take(),
            stderr,
            ended,
            duration: started.elapsed(),
        },
        reached,
    )
}

/// Returns whether the kernel killed the command for lack of memory.
async fn ran_out_of_memory(cgroup: &Arc<Cgroup>) -> bool {
    let cgroup = Arc::clone(cgroup);
    tokio::task::spawn_blocking(move || cgroup.ran_out_of_memory())
        .await
        .unwrap_or(false)
}

/// Kills what is left in a cgroup, and removes it.
async fn end(cgroup: Option<Arc<Cgroup>>) {
    let Some(cgroup) = cgroup else { return };
    match tokio::task::spawn_blocking(move || cgroup.end()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the cgroup of a command cannot be removed"),
        Err(error) => tracing::warn!(%error, "the cgroup of a command was not removed"),
    }
}

fn program(argv: Vec<OsString>) -> Command {
    let mut words = argv.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env_clear().current_dir("/");
    command
}

fn cannot_start(error: io::Error) -> Error {
    let (code, message) = match error.kind() {
        io::ErrorKind::ArgumentListTooLong => (
            Code::InvalidInput,
            "the command is longer than this system takes; put what is long into a file or stdin",
        ),
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => (
            Code::ResourceExhausted,
            "cannot start another process: the system limit is reached",
        ),
        _ => (Code::SessionUnavailable, "the command cannot be started"),
    };
    Error::new(code, message).with_source(error)
}

fn over() -> Error {
    Error::new(Code::SessionUnavailable, "the session has ended")
}

fn pid(group: &Group) -> Option<Pid> {
    group.id().map(GroupId::leader)
}

/// Reads the first byte, or nothing at the end.
async fn first_byte(pipe: &mut ChildStderr) -> Vec<u8> {
    let mut first = vec![0];
    let read = pipe.read(&mut first).await.unwrap_or(0);
    first.truncate(read);
    first
}

/// Waits until the command exceeds a limit.
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
                // The machine may lack a resource for a moment. A folder that stays unreadable
                // counts as full.
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
        let own = has_own_file_system(&allowed);
        let mut nameless = 0;
        // Neither is measured where the kernel keeps both limits.
        if allowed.memory.is_some() || !own {
            let device = std::fs::symlink_metadata(&allowed.folder).map_or(0, |about| about.dev());
            let memory = allowed.memory.unwrap_or(u64::MAX);
            let usage = processes::usage(root, device, memory);
            if usage.memory > memory {
                return Ok(Some(Ended::OutOfMemory));
            }
            nameless = if own { 0 } else { usage.nameless };
        }
        // A command whose folder is full is told so by its writes.
        let folders = if disk && !own {
            on_disk(&allowed, None, stop)?
        } else {
            0
        };
        Ok((folders.saturating_add(nameless) > allowed.disk).then_some(Ended::OutOfDisk))
    })
    .await
}

/// Checks before the start whether the folders are full.
///
/// Files that helmdeck put there become the command's own.
async fn look_at_disk(allowed: &Allowed) -> Result<Option<Ended>> {
    let allowed = allowed.clone();
    let used = looking(move |stop| {
        if !has_own_file_system(&allowed) {
            return Ok(on_disk(&allowed, allowed.owner, stop)? > allowed.disk);
        }
        // A full one may be emptied by a command.
        if allowed.owner.is_some() {
            disk::usage(&allowed.folder, u64::MAX, allowed.owner, stop)?;
        }
        Ok(disk::usage(&allowed.supplies, allowed.disk, None, stop)? > allowed.disk)
    })
    .await;
    match used {
        Ok(full) => Ok(full.then_some(Ended::OutOfDisk)),
        Err(error) => Err(Error::new(
            Code::SessionUnavailable,
            "the folder of the session cannot be looked at",
        )
        .with_source(error)),
    }
}

/// Returns whether the folder of a session is a file system, of the size that it may have.
fn has_own_file_system(allowed: &Allowed) -> bool {
    allowed
        .folder
        .parent()
        .is_some_and(|session| image::is_own(session, &allowed.folder))
}

/// Returns the size of the folders of a session.
fn on_disk(allowed: &Allowed, owner: Option<u32>, stop: &AtomicBool) -> io::Result<u64> {
    let folder = disk::usage(&allowed.folder, allowed.disk, owner, stop)?;
    let left = allowed.disk.saturating_sub(folder);
    Ok(folder.saturating_add(disk::usage(&allowed.supplies, left, None, stop)?))
}

/// Measures something on a blocking thread, which stops when the future is dropped.
async fn looking<T: Send + 'static>(
    look: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let _waiting = Waiting(Arc::clone(&stop));
    tokio::task::spawn_blocking(move || look(&stop))
        .await
        .map_err(io::Error::other)?
}

/// Sets a flag when it is dropped.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills a command with everything that it started, and waits until all of it is gone.
///
/// Without a cgroup, the children of the outermost process are killed until it ends: it adopts
/// orphans and ends when no process is left. If it were killed itself, it could not report that.
async fn kill(group: &mut Group, cgroup: Option<&Arc<Cgroup>>) {
    let Some(root) = pid(group) else { return };
    let kill_all = async {
        loop {
            let cgroup = cgroup.cloned();
            // Again and again: the outermost process may not have entered its cgroup yet.
            let all = move || match cgroup {
                Some(cgroup) if cgroup.kill().is_ok() => {}
                _ => processes::children(root)
                    .into_iter()
                    .for_each(|pid| processes::kill_child(pid, root)),
            };
            let _ = tokio::task::spawn_blocking(all).await;
            if tokio::time::timeout(KILL_LOOK, group.wait()).await.is_ok() {
                return;
            }
        }
    };
    if tokio::time::timeout(KILL_LIMIT, kill_all).await.is_err() {
        tracing::warn!("a command of a session does not end although it was killed");
        group.kill();
        let _ = group.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropped_check_is_told_to_stop() {
        let (began, begun) = tokio::sync::oneshot::channel();
        let (ends, ended) = tokio::sync::oneshot::channel();
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
