//! Connection to the system database.
//!
//! The first write creates the file; reading without a file finds nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::drivers::sqlite::file::{DatabaseFile, FileIdentity};
use helmdeck_memory::drivers::sqlite::migrate::Migrations;
use helmdeck_memory::{Result, StoreError};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior};

static MIGRATIONS: Migrations = Migrations {
    ledger: "system_migrations",
    steps: &[
        ("system", include_str!("migrations/0001_system.sql")),
        ("tokens", include_str!("migrations/0002_tokens.sql")),
        ("vault", include_str!("migrations/0003_vault.sql")),
        ("jobs", include_str!("migrations/0004_jobs.sql")),
        ("statistics", include_str!("migrations/0005_statistics.sql")),
    ],
};

/// How long to wait for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Size of the log at which it is moved into the database, in bytes.
const LOG_BYTES: u64 = 1 << 20;

/// The system database. Cheap to clone; clones share the connection.
#[derive(Debug, Clone)]
pub struct System(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: DatabaseFile,
    open: Mutex<Option<(Connection, FileIdentity)>>,
}

impl System {
    /// Returns the database at a path, without touching the file.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let file = DatabaseFile::new(path.into(), BUSY_TIMEOUT, LOG_BYTES, &MIGRATIONS);
        Self(Arc::new(Shared { file, open: Mutex::new(None) }))
    }

    /// Returns the path of the database.
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

/// Runs blocking work on a thread for it.
///
/// # Errors
/// `Unavailable` if the work panics, and what `work` returns.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(StoreError::unavailable)?
}

/// Moves the log into the database and empties it, unless a reader prevents it.
///
/// # Errors
/// `Unavailable`, `Corrupt`.
pub(crate) fn empty_log(db: &Connection) -> Result<()> {
    Ok(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

/// Returns the time `kept` before now, in microseconds.
pub(crate) fn before(now: Timestamp, kept: Duration) -> i64 {
    now.micros().saturating_sub(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX))
}
