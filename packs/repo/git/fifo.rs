//! A named pipe that passes a secret to each reader. The secret is never written to a disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use helmdeck_core::{Code, Error, Result};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

/// How often the pipe is checked for a reader.
///
/// The kernel reports a reader only to a writer that blocks a thread.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The content of a pipe, in parts, so that a secret is not copied into a longer text.
pub(super) trait SecretParts: Send + Sync + 'static {
    /// Returns the parts in order.
    fn parts(&self) -> Vec<&str>;
}

/// A named pipe. It passes the secret until it is dropped.
pub(super) struct Fifo {
    path: PathBuf,
    writer: AbortHandle,
}

impl Fifo {
    /// Creates a pipe that only this user can open, and writes to each reader.
    ///
    /// # Errors
    /// `internal` if the system refuses.
    pub(super) fn serve(folder: &Path, name: &str, content: impl SecretParts) -> Result<Self> {
        let path = folder.join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(|error| {
            Error::new(Code::Internal, "a pipe cannot be made").with_source(error)
        })?;
        let place = path.clone();
        let writer = tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                match pipe::OpenOptions::new().open_sender(&place) {
                    Ok(mut sender) => {
                        for part in content.parts() {
                            // A reader may close the pipe early.
                            let _ = sender.write_all(part.as_bytes()).await;
                        }
                        drop(sender);
                        // Its reader sees the end before the next reader is served.
                        tokio::time::sleep(4 * LOOK_EVERY).await;
                    }
                    Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {}
                    Err(_) => return,
                }
            }
        });
        Ok(Self {
            path,
            writer: writer.abort_handle(),
        })
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        self.writer.abort();
    }
}
