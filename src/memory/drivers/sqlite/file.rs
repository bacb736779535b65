//! Database file: creation with private permissions, opening, and detection of a replaced file.
//!
//! Creation and opening hold a lock on the folder, so only one of several processes creates a
//! missing file. A `-wal` or `-shm` of a deleted file is removed first, because SQLite would read
//! it into the new file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::migrate::Migrations;
use crate::error::{Result, StoreError};

/// Page size in bytes: SQLite's default.
const PAGE_BYTES: u64 = 4096;

/// `PRAGMA auto_vacuum` of a file that gives pages back step by step.
const INCREMENTAL: i64 = 2;
/// Part of `busy_timeout` to wait for another process's lock if nothing can be lost: 78 ms by
/// default.
///
/// That is at the start, for answers and for audit rows. A commit holds the lock for a few
/// milliseconds.
const BRIEF: u32 = 64;

/// Identity of a file: device and inode.
type Id = (u64, u64);

/// The files of an open database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    main: Id,
    wal: Option<Id>,
    shm: Option<Id>,
}

/// A database file.
#[derive(Debug)]
pub struct DatabaseFile {
    path: PathBuf,
    busy_timeout: Duration,
    log_bytes: u64,
    migrations: &'static Migrations,
}

impl DatabaseFile {
    /// Returns a file by its path, without opening it.
    ///
    /// A write-ahead log of about `log_bytes` is checkpointed into the database.
    #[must_use]
    pub fn new(
        path: PathBuf,
        busy_timeout: Duration,
        log_bytes: u64,
        migrations: &'static Migrations,
    ) -> Self {
        Self {
            path,
            busy_timeout,
            log_bytes,
            migrations,
        }
    }

    /// Returns the size of the log at which it is checkpointed.
    pub(crate) const fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Returns how long to wait for another process's lock.
    pub(crate) const fn busy_timeout(&self) -> Duration {
        self.busy_timeout
    }

    /// Returns how long to wait for another process's lock if nothing can be lost.
    pub(crate) fn brief_wait(&self) -> Duration {
        self.busy_timeout / BRIEF
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for writing. Creates it and its folder if missing, and migrates its schema.
    ///
    /// `gone` is the file that was open at this path before, if any. None of its connections may be
    /// open in this process.
    ///
    /// # Errors
    /// `Corrupt` if it is not a database, or not ours; `Unavailable`.
    pub fn open_for_writing(
        &self,
        gone: Option<FileIdentity>,
    ) -> Result<(Connection, FileIdentity)> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| self.about(error))?;
        let lock = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
        let _lock = lock.map_err(|error| self.about(error))?;
        self.clear_leftovers(gone)?;
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)
        {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(self.about(error)),
        }
        let before = self.id("")?;
        let mut connection = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(self.brief_wait())?;
        self.set_up(&mut connection)
            .map_err(|error| self.name(error))?;
        connection.busy_timeout(self.busy_timeout)?;
        let identity = self
            .identity()?
            .ok_or_else(|| self.about(ErrorKind::NotFound.into()))?;
        // Otherwise this process would write to an unlinked file that no other process sees.
        if before != Some(identity.main) {
            return Err(self.swapped());
        }
        Ok((connection, identity))
    }

    /// Opens the file read-only; it must exist and be `current`.
    ///
    /// # Errors
    /// `Corrupt`; `Unavailable`, also if another file is at the path.
    pub(crate) fn open_for_reading(&self, current: &FileIdentity) -> Result<Connection> {
        let connection = self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        if self.is_still(current) {
            Ok(connection)
        } else {
            Err(self.swapped())
        }
    }

    /// Opens the file for writing again; it must be `current`.
    ///
    /// # Errors
    /// As [`Self::open_for_writing`]; `Unavailable` if another file is at the path.
    pub(crate) fn open_again(&self, current: &FileIdentity) -> Result<Connection> {
        let (connection, identity) = self.open_for_writing(None)?;
        if identity.main == current.main {
            Ok(connection)
        } else {
            Err(self.swapped())
        }
    }

    fn swapped(&self) -> StoreError {
        let message = format!(
            "{}: another file took its place while it was opened",
            self.path.display()
        );
        StoreError::Unavailable {
            message,
            source: None,
        }
    }

    /// Returns what is at the path now, `None` if nothing is.
    ///
    /// # Errors
    /// `Unavailable` if the folder cannot be read.
    pub fn identity(&self) -> Result<Option<FileIdentity>> {
        let Some(main) = self.id("")? else {
            return Ok(None);
        };
        Ok(Some(FileIdentity {
            main,
            wal: self.id("-wal")?,
            shm: self.id("-shm")?,
        }))
    }

    /// Returns whether the file at the path is the one that was opened.
    #[must_use]
    pub fn is_still(&self, identity: &FileIdentity) -> bool {
        matches!(self.id(""), Ok(Some(main)) if main == identity.main)
    }

    /// Returns the bytes of the database and its log.
    pub(crate) fn disk_bytes(&self) -> u64 {
        ["", "-wal"]
            .iter()
            .filter_map(|suffix| fs::metadata(self.beside(suffix)).ok())
            .map(|file| file.len())
            .sum()
    }

    fn connect(&self, flags: OpenFlags) -> Result<Connection> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)
            .map_err(|error| self.name(error.into()))?;
        connection.busy_timeout(self.busy_timeout)?;
        // Without this guarantee SQLite plans a statement anew for each value that is bound to it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(64);
        // Holds the inner pages of the indexes of a million rows; taken only as far as it is used.
        connection
            .pragma_update(None, "cache_size", -8192)
            .map_err(|error| self.name(error.into()))?;
        Ok(connection)
    }

    fn set_up(&self, connection: &mut Connection) -> Result<()> {
        // Must come before anything is in the file; an older file stays as it is. To set it takes
        // the lock for writing, so that is done only where it is needed: a file that another
        // process writes to can still be opened and read.
        let vacuum: i64 = connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        if vacuum != INCREMENTAL && pages == 0 {
            connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
        }
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(StoreError::Corrupt(format!(
                "its journal mode stays \"{mode}\", it must be \"wal\""
            )));
        }
        // Deleted values are overwritten, not only unlinked. The log is moved into the database at
        // a size limit, so that a page that many commits change is moved once, and the log shrinks
        // back after a burst.
        connection.execute_batch(&format!(
            "PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint = {}; PRAGMA journal_size_limit = {};",
            self.log_bytes / PAGE_BYTES,
            self.log_bytes
        ))?;
        self.migrations.apply(connection)
    }

    /// Removes a `-wal` and a `-shm` that belong to no file, or to the file that was here before.
    fn clear_leftovers(&self, gone: Option<FileIdentity>) -> Result<()> {
        let now = self.identity()?;
        let absent = now.is_none();
        if !absent && gone.is_none_or(|gone| now.is_some_and(|now| now.main == gone.main)) {
            return Ok(());
        }
        for (suffix, old) in [
            ("-wal", gone.and_then(|gone| gone.wal)),
            ("-shm", gone.and_then(|gone| gone.shm)),
        ] {
            let found = self.id(suffix)?;
            if found.is_some() && (absent || found == old) {
                fs::remove_file(self.beside(suffix)).map_err(|error| self.about(error))?;
            }
        }
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    fn id(&self, suffix: &str) -> Result<Option<Id>> {
        match fs::metadata(self.beside(suffix)) {
            Ok(file) => Ok(Some((file.dev(), file.ino()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.about(error)),
        }
    }

    fn about(&self, error: std::io::Error) -> StoreError {
        StoreError::Unavailable {
            message: format!("{}: {error}", self.path.display()),
            source: Some(std::sync::Arc::new(error)),
        }
    }

    fn name(&self, error: StoreError) -> StoreError {
        let path = self.path.display();
        match error {
            StoreError::Corrupt(message) => StoreError::Corrupt(format!("{path}: {message}")),
            StoreError::Unavailable { message, source } => StoreError::Unavailable {
                message: format!("{path}: {message}"),
                source,
            },
            other => other,
        }
    }
}
