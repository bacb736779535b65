//! Room for deletes on a full disk: a file beside the database, removed when a delete finds no
//! space.
//!
//! A delete needs room for its log before it frees any, and so does the checkpoint that empties the
//! log. A process that lives longer than a second keeps the file, so that any process can use it.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Room for the deletes themselves: of some hundred entries.
const DELETES: u64 = 1 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// Returns the reserve of a database file whose log is checkpointed at `log_bytes`.
    pub(super) fn of(database: &Path, log_bytes: u64) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push("-reserve");
        Self {
            path: name.into(),
            bytes: log_bytes + DELETES,
        }
    }

    /// Makes the file if it is missing and the disk has twice its size. Returns whether it is there
    /// now.
    ///
    /// A file system that cannot allocate in advance has no reserve.
    pub(super) fn keep(&self) -> bool {
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let free = statvfs(folder).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        if free < 2 * self.bytes {
            return self.path.exists();
        }
        match File::create_new(&self.path) {
            Err(error) => error.kind() == ErrorKind::AlreadyExists,
            Ok(file) => {
                let allocated = fallocate(&file, FallocateFlags::empty(), 0, self.bytes).is_ok();
                if !allocated {
                    self.give();
                }
                allocated
            }
        }
    }

    /// Removes the file. Returns whether it was there.
    pub(super) fn give(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }
}
