//! Locks between processes. The kernel releases one when its process dies; the file stays.

use parking_lot::{Mutex, MutexGuard};
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::path;
use crate::error::{Category, Error, Result};

/// How long one waits for a lock.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How long one waits between two tries.
const STEP: Duration = Duration::from_millis(1);
/// How much of a lock file is read.
const MAX_HOLDER: u64 = 4_096;

/// Holder of a lock, as the lock file names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// The agent of the process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// Since when, RFC 3339.
    pub since: String,
}

/// A lock. Its clones are the same lock. A thread that holds it may take it again.
#[derive(Debug, Clone)]
pub struct Lock {
    /// The folder that the way to the file never leaves.
    root: Arc<PathBuf>,
    path: &'static str,
    held: Arc<Mutex<Option<Held>>>,
    wait: Duration,
}

#[derive(Debug)]
struct Held {
    thread: ThreadId,
    depth: usize,
    // Closing it frees the lock.
    _file: File,
}

/// Holds a lock until it is dropped, by the thread that took it.
#[derive(Debug)]
#[must_use = "the lock is free again at once"]
pub struct Guard {
    lock: Lock,
    // A lock belongs to a thread.
    _thread: PhantomData<*const ()>,
}

impl Lock {
    /// Makes the lock at a path below a folder.
    pub fn new(root: &Path, path: &'static str) -> Self {
        Self {
            root: Arc::new(root.to_owned()),
            path,
            held: Arc::default(),
            wait: LOCK_WAIT,
        }
    }

    #[cfg(test)]
    /// Returns this lock with another time to wait for it.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock()
    }

    /// Says whether this thread holds it.
    pub fn is_mine(&self) -> bool {
        self.held()
            .as_ref()
            .is_some_and(|held| held.thread == thread::current().id())
    }

    /// Takes the lock, or waits for it.
    pub fn take(&self, me: impl FnOnce() -> Holder) -> Result<Guard> {
        if let Some(held) = self
            .held()
            .as_mut()
            .filter(|held| held.thread == thread::current().id())
        {
            held.depth += 1;
            return Ok(Guard::new(self));
        }
        let io =
            |error: std::io::Error| Error::io("cannot lock", &self.root.join(self.path), &error);
        let until = Instant::now() + self.wait;
        // Turnstile: one waiter holds `.next` and the others queue for it, so a former holder
        // cannot jump the queue.
        let door = self.open(".next")?;
        let mut file = self.open("")?;
        if !(wait(&door, until).map_err(io)? && wait(&file, until).map_err(io)?) {
            return Err(self.busy(file));
        }
        drop(door);
        // This only shows the holder to other processes: the lock holds without it.
        let _ = write(&mut file, &me());
        *self.held() = Some(Held {
            thread: thread::current().id(),
            depth: 1,
            _file: file,
        });
        Ok(Guard::new(self))
    }

    /// Opens the file, or the one beside it.
    fn open(&self, beside: &str) -> Result<File> {
        let path = self.root.join(self.path);
        let absent = || Error::not_found(format!("there is no folder for {}", path.display()));
        let place = path::resolve(&self.root, &format!("{}{beside}", self.path), true)?
            .ok_or_else(absent)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat(
            &place.folder,
            place.name.as_str(),
            flags,
            Mode::from_raw_mode(0o666),
        )
        .map(File::from)
        .map_err(|error| Error::io("cannot lock", &path, &error.into()))
    }

    fn busy(&self, file: File) -> Error {
        let who = holder(file).map_or_else(
            || "another process".to_owned(),
            |holder| format!("process {}, since {}", holder.pid, holder.since),
        );
        Error::new(
            Category::Locked,
            "E_LOCKED",
            format!("{} is held by {who}", self.root.join(self.path).display()),
        )
        .hint(format!(
            "waited {} seconds; it is free as soon as that process goes on or ends",
            self.wait.as_secs_f32()
        ))
    }
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    /// How often this thread holds locks of work trees.
    static LOCAL: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Says whether this thread holds the lock of a work tree: then no program is run.
#[cfg(any(test, feature = "testing"))]
#[must_use]
pub fn holds_local() -> bool {
    LOCAL.get() > 0
}

impl Guard {
    fn new(lock: &Lock) -> Self {
        #[cfg(any(test, feature = "testing"))]
        LOCAL.set(LOCAL.get() + usize::from(lock.path == crate::layout::LOCK));
        Self {
            lock: lock.clone(),
            _thread: PhantomData,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        #[cfg(any(test, feature = "testing"))]
        LOCAL.set(LOCAL.get() - usize::from(self.lock.path == crate::layout::LOCK));
        let mut held = self.lock.held();
        if let Some(inner) = held.as_mut() {
            inner.depth -= 1;
            if inner.depth == 0 {
                *held = None;
            }
        }
    }
}

fn wait(file: &File, until: Instant) -> std::io::Result<bool> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(STEP),
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn write(file: &mut File, holder: &Holder) -> std::io::Result<()> {
    let text = serde_json::to_vec(holder)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)
}

/// Returns the holder of a lock, or the last one.
fn holder(file: File) -> Option<Holder> {
    let mut text = Vec::new();
    file.take(MAX_HOLDER).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Holder {
        Holder {
            pid: 77,
            since: "2025-12-24T10:00:00Z".into(),
            ..Holder::default()
        }
    }

    #[test]
    fn a_second_one_is_told_who_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let guard = Lock::new(folder.path(), "a/lock").take(me).unwrap();
        let second = Lock::new(folder.path(), "a/lock").waiting(Duration::from_millis(20));
        let error = second.take(me).unwrap_err();
        assert_eq!((error.code, error.category.exit_code()), ("E_LOCKED", 5));
        assert!(
            error
                .message
                .contains("process 77, since 2025-12-24T10:00:00Z"),
            "{error}"
        );
        drop(guard);
        assert!(second.take(me).is_ok());
    }

    #[test]
    fn one_thread_takes_it_again_and_another_waits() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::new(folder.path(), "lock").waiting(Duration::from_millis(20));
        let outer = lock.take(me).unwrap();
        let inner = lock.take(me).unwrap();
        drop(outer);
        assert!(lock.is_mine(), "the inner one still holds it");
        let other = lock.clone();
        assert_eq!(
            thread::spawn(move || other.take(me).map(drop))
                .join()
                .unwrap()
                .unwrap_err()
                .code,
            "E_LOCKED"
        );
        drop(inner);
        assert!(!lock.is_mine());
        thread::spawn(move || lock.take(me).map(drop))
            .join()
            .unwrap()
            .unwrap();
    }

    #[test]
    fn a_link_cannot_lead_the_lock_elsewhere() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink("..", root.join("a")).unwrap();
        assert_eq!(
            Lock::new(&root, "a/lock").take(me).unwrap_err().code,
            "E_PATH"
        );
        assert!(!outer.path().join("lock").exists());
    }
}
