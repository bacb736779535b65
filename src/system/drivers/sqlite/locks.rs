//! Lock that shows that a process is alive.
//!
//! The kernel frees it when the process ends, in any way (`flock`).

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aes_gcm::aead::Generate;
use async_trait::async_trait;
use helmdeck_core::hex;
use helmdeck_memory::{Result, StoreError};

use crate::replica::Lease;

/// What a lock's file is called: the owner's name and this.
const SUFFIX: &str = ".lock";

/// The proof that this process is alive.
#[derive(Debug)]
pub(super) struct FileLock {
    name: Arc<str>,
    path: PathBuf,
    /// Never looked at: the lock ends with it.
    _lock: File,
}

impl FileLock {
    /// Takes a lock under a new name, in a folder that is made if need be.
    pub(super) fn take(folder: &Path) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| about(folder, error))?;
        clear(folder);
        let name = hex(&<[u8; 16]>::try_generate().map_err(StoreError::unavailable)?);
        let path = folder.join(format!("{name}{SUFFIX}"));
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path);
            let file = file.map_err(|error| about(&path, error))?;
            file.lock().map_err(|error| about(&path, error))?;
            // Another process may have found it unlocked, and removed it.
            if is_at(&file, &path) {
                return Ok(Self {
                    name: name.into(),
                    path,
                    _lock: file,
                });
            }
        }
    }
}

#[async_trait]
impl Lease for FileLock {
    fn id(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn holds(&self, id: &str) -> bool {
        *self.name == *id
    }

    async fn end(&self) -> Result<()> {
        // The kernel frees the lock with the process.
        Ok(())
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If it stays, the next process removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// An owner that is gone. Its lock is held meanwhile, so that no other process ends its jobs too.
pub(super) struct Gone(Option<(File, PathBuf)>);

impl Gone {
    /// Removes what is left of its lock.
    pub(super) fn remove(self) {
        if let Some((_lock, path)) = self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns an owner whose process is gone.
///
/// `None` if it is alive, if another process checks it now, or if its lock cannot be read.
pub(super) fn gone(folder: &Path, name: &str) -> Option<Gone> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        // No process of ours has such a name, and it must not lead out of the folder.
        return Some(Gone(None));
    }
    let path = folder.join(format!("{name}{SUFFIX}"));
    match File::open(&path) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Some(Gone(Some((file, path)))),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(error)) => unreadable(&path, &error),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Some(Gone(None)),
        Err(error) => unreadable(&path, &error),
    }
}

/// Logs once that a lock cannot be read: it is checked every few seconds, and hides no other.
fn unreadable(path: &Path, error: &io::Error) -> Option<Gone> {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Ordering::Relaxed) {
        let path = path.display();
        tracing::warn!(%path, %error, "the lock of a process that runs jobs cannot be looked at; its jobs stay as they are");
    }
    None
}

/// Removes locks without a holder. A missing lock also means that the owner is gone.
fn clear(folder: &Path) {
    let Ok(files) = fs::read_dir(folder) else {
        return;
    };
    for path in files.filter_map(|file| Some(file.ok()?.path())) {
        let ours = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.ends_with(SUFFIX));
        if ours
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn about(path: &Path, error: io::Error) -> StoreError {
    StoreError::Unavailable {
        message: format!("{}: {error}", path.display()),
        source: Some(Arc::new(error)),
    }
}
