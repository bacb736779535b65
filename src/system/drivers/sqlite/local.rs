//! A database file of this machine, opened when it is first used and again if another file takes
//! its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::drivers::sqlite::file::{DatabaseFile, FileIdentity};
use helmdeck_memory::drivers::sqlite::migrate::Migrations;
use helmdeck_memory::{Result, StoreError};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::system::blocking;

/// Size of the log at which it is moved into the database, in bytes.
const LOG_BYTES: u64 = 1 << 20;

/// The file and its connection.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: DatabaseFile,
    open: Mutex<Option<(Connection, FileIdentity)>>,
}

impl LocalFile {
    /// Returns the database at a path, without touching the file. It waits for another process's
    /// lock for `busy_timeout`.
    pub(crate) fn new(
        path: PathBuf,
        busy_timeout: Duration,
        migrations: &'static Migrations,
    ) -> Self {
        let file = DatabaseFile::new(path, busy_timeout, LOG_BYTES, migrations);
        Self(Arc::new(Shared {
            file,
            open: Mutex::new(None),
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.file.path()
    }

    /// Runs work in a write transaction, and creates the database if it is missing.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`, and what `work` returns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = Arc::clone(&self.0);
        blocking(move || {
            shared.with(|db| {
                let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let result = work(&transaction)?;
                transaction.commit()?;
                Ok(result)
            })
        })
        .await
    }

    /// Runs work on the database; `None` if there is no database yet. Creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`, and what `work` returns.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        let shared = Arc::clone(&self.0);
        blocking(move || {
            if shared.file.identity()?.is_none() {
                return Ok(None);
            }
            shared.with(|db| work(db)).map(Some)
        })
        .await
    }
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut open = self.open.lock();
        let mut gone = None;
        if let Some((_, identity)) = &*open
            && !self.file.is_still(identity)
        {
            gone = Some(*identity);
            *open = None;
        }
        let (db, _) = match &mut *open {
            Some(open) => open,
            closed => closed.insert(self.file.open_for_writing(gone)?),
        };
        let result = work(db);
        if matches!(result, Err(StoreError::Corrupt(_))) {
            *open = None;
        }
        result
    }
}
