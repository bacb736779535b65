//! The lock of a sync: one at a time for all work trees of a repository.

use std::fs::{File, OpenOptions, TryLockError};
use std::time::{Duration, Instant};

use helmdeck_forge::{Category, Error, Project, Result, layout};

/// Time to wait for another sync.
const WAIT: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(50);

/// Holds the lock until it is dropped. The kernel releases it when the process dies.
#[derive(Debug)]
#[must_use = "the lock is free again at once"]
pub(super) struct SyncGuard(#[allow(dead_code, reason = "closing it frees the lock")] File);

/// Takes the lock, or waits for it.
///
/// # Errors
/// `Locked` after ten seconds.
pub(super) async fn take(project: &Project) -> Result<SyncGuard> {
    let folder = match project.git() {
        Ok(git) => git.common_dir().join("forge"),
        Err(_) => project.root().join(layout::LOCAL).join("linear"),
    };
    let path = folder.join("sync.lock");
    let io = |error: std::io::Error| Error::io("cannot lock", &path, &error);
    std::fs::create_dir_all(&folder).map_err(io)?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(io)?;
    let until = Instant::now() + WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(SyncGuard(file)),
            Err(TryLockError::Error(error)) => return Err(io(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                let message = format!(
                    "another process synchronises the issues: it holds {}",
                    path.display()
                );
                return Err(Error::new(Category::Locked, "E_LOCKED", message)
                    .hint("try again when it has ended"));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(STEP).await,
        }
    }
}
