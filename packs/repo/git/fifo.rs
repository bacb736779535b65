//! A pipe with a name that hands a secret to whoever opens it for reading. Nothing of it is ever on a disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use helmdeck_core::{Code, Error, Result};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

/// How often it is looked whether a reader came. The kernel tells a writer of a reader only if it waits on a thread.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is handed over, in parts, so that a secret is not copied into a longer text.
pub(super) trait Parts: Send + Sync + 'static {
    /// Returns the parts in order.
    fn parts(&self) -> Vec<&str>;
}

/// A pipe with a name. The secret is handed out until this is dropped.
pub(super) struct Fifo {
    path: PathBuf,
    writer: AbortHandle,
}

impl Fifo {
    /// Makes a pipe that only this user can open, and writes to each reader that comes.
    ///
    /// # Errors
    /// `internal` if the system refuses.
    pub(super) fn serve(folder: &Path, name: &str, content: impl Parts) -> Result<Self> {
        let path = folder.join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(|error| Error::new(Code::Internal, "a pipe cannot be made").with_source(error))?;
        let place = path.clone();
        let writer = tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                match pipe::OpenOptions::new().open_sender(&place) {
                    Ok(mut sender) => {
                        for part in content.parts() {
                            // A reader that went away has what it wanted.
                            let _ = sender.write_all(part.as_bytes()).await;
                        }
                        drop(sender);
                        // Its reader sees the end before the next one is looked for.
                        tokio::time::sleep(4 * LOOK_EVERY).await;
                    }
                    Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {}
                    Err(_) => return,
                }
            }
        });
        Ok(Self { path, writer: writer.abort_handle() })
    }

    /// Returns where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        self.writer.abort();
    }
}
