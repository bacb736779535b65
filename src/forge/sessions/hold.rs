//! Lock of a session: held by a process that works for it, released by the kernel when it dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Sessions;
use super::record::{ActiveSessions, Holder};
use crate::error::{Category, Error, Result};
use crate::layout::SESSION_LOCKS;

/// Number of retries for a taken lock, and the pause between them.
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(5);

/// Guard that keeps a session active until it is dropped or its process dies.
#[derive(Debug)]
pub struct Hold<'a> {
    sessions: Sessions<'a>,
    id: String,
    // Closing the file releases the lock.
    _file: File,
}

impl<'a> Sessions<'a> {
    /// Holds the lock of a session, which keeps the session active while this process runs, and no longer.
    ///
    /// # Errors
    /// `Locked` if another process works for it; `NotFound` if it is not active.
    pub fn hold(&self, id: &str) -> Result<Hold<'a>> {
        let files = self.project.files();
        files.create_folder(SESSION_LOCKS)?;
        let _guard = files.lock()?;
        let path = self.lock_path(id);
        let io = |error: &std::io::Error| Error::io("cannot lock", &path, error);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| io(&error))?;
        // A probe of the lock, as in `health`, lasts only a moment.
        let mut locked = file.try_lock();
        for _ in 0..LOOKS {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(LOOK);
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another process works for session {id}");
                return Err(Error::new(Category::Locked, "E_SESSION_HELD", message));
            }
            Err(TryLockError::Error(error)) => return Err(io(&error)),
        }
        let holder = Holder { pid: std::process::id(), since: self.project.environment().now().seconds() };
        files.edit::<ActiveSessions, ()>(None, |living| {
            super::active::named_one(living, id)?;
            if let Some(session) = living.get_mut(id) {
                session.holder = Some(holder);
            }
            Ok(())
        })?;
        Ok(Hold { sessions: *self, id: id.to_owned(), _file: file })
    }

    /// Says whether the lock of a session is free. It probes without waiting.
    pub(crate) fn is_free(&self, id: &str) -> bool {
        is_free(&self.lock_path(id))
    }

    fn lock_path(&self, id: &str) -> PathBuf {
        self.project.root().join(SESSION_LOCKS).join(format!("{id}.lock"))
    }
}

/// Says whether a lock is free.
pub(super) fn is_free(lock: &Path) -> bool {
    match File::open(lock) {
        // A lock that cannot be checked counts as held, so that no session is reaped by mistake.
        Ok(file) => file.try_lock_shared().is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // If this write fails, the next start finds a free lock and a named holder: an abandoned session,
        // which is safe.
        let cleared = self.sessions.project.files().edit::<ActiveSessions, ()>(None, |living| {
            if let Some(session) = living.get_mut(&self.id) {
                session.holder = None;
            }
            Ok(())
        });
        if let Err(error) = cleared {
            tracing::warn!(session = self.id, %error, "the holder of a session could not be taken out of its record");
        }
    }
}
