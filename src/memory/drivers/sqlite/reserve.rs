//! Room for deletes on a full disk: a file beside the database, removed when a delete finds no space.
//!
//! A delete needs room for its log before it frees any. A process that lives longer than a second keeps the file, so that
//! any process can use it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Size of the file: the log of the deletes of some hundred entries.
const BYTES: usize = 1 << 20;

/// Room on the disk from which the file is made.
const ROOM: u64 = 4 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct Reserve(PathBuf);

impl Reserve {
    /// Returns the reserve of a database file.
    pub(super) fn of(database: &Path) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push("-reserve");
        Self(name.into())
    }

    /// Makes the file if it is missing and the disk has several times its size. Returns whether it is there now.
    pub(super) fn keep(&self) -> bool {
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let room = rustix::fs::statvfs(folder).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) > ROOM);
        if !room {
            return self.0.exists();
        }
        match File::create_new(&self.0) {
            Err(error) => error.kind() == ErrorKind::AlreadyExists,
            Ok(mut file) => {
                let filled = file.write_all(&vec![0; BYTES]).and_then(|()| file.sync_all());
                if filled.is_err() {
                    // A part of it would take the last room from others.
                    self.give();
                }
                filled.is_ok()
            }
        }
    }

    /// Removes the file. Returns whether it was there.
    pub(super) fn give(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}
