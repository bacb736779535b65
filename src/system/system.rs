//! Handle of the system database.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::{Config, KeyRing, Result, StoreError};

use crate::driver::Driver;
#[cfg(feature = "postgres")]
use crate::drivers::postgres::Postgres;
use crate::drivers::sqlite::Sqlite;
use crate::journal::Journal;
use crate::replica::SharedReplica;
use crate::tokens::TokenSeal;

/// The system database. Cheap to clone; clones share connections and membership.
#[derive(Debug, Clone)]
pub struct System(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    driver: Box<dyn Driver>,
    joined: SharedReplica,
    /// Where there is a memory key.
    tokens: OnceLock<TokenSeal>,
    /// Where there is a data folder.
    journal: OnceLock<Journal>,
}

impl System {
    /// Returns the SQLite database at a path, without touching the file. It waits for another
    /// process's lock for the default of [`Config::busy_timeout`].
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::file(path, Config::default().busy_timeout)
    }

    /// As [`System::at`], but waits for another process's lock for `busy_timeout`.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>, busy_timeout: Duration) -> Self {
        Self::of(Box::new(Sqlite::at(path.into(), busy_timeout)))
    }

    /// Returns the tables in a PostgreSQL database, without connecting. Several processes share
    /// them.
    ///
    /// The first write creates them. Of the configuration, only what concerns connections counts.
    ///
    /// # Errors
    /// `BadUrl` if the URL is not understood; `Unavailable` if a certificate cannot be read.
    #[cfg(feature = "postgres")]
    pub fn connect(url: &str, config: &Config) -> Result<Self> {
        Ok(Self::of(Box::new(Postgres::new(url, config)?)))
    }

    fn of(driver: Box<dyn Driver>) -> Self {
        Self(Arc::new(Shared {
            driver,
            joined: SharedReplica::default(),
            tokens: OnceLock::new(),
            journal: OnceLock::new(),
        }))
    }

    /// Seals API tokens with the memory key from now on, and accepts no others. A second call
    /// changes nothing.
    #[must_use]
    pub fn with_keys(self, ring: Option<KeyRing>) -> Self {
        if let Some(ring) = ring {
            let _ = self.0.tokens.set(TokenSeal::new(ring));
        }
        self
    }

    /// Keeps what the database owes in a journal from now on. A second call changes nothing.
    #[must_use]
    pub fn with_journal(self, journal: Journal) -> Self {
        let _ = self.0.journal.set(journal);
        self
    }

    /// Returns the journal, `None` if there is no place for one.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.0.journal.get()
    }

    pub(crate) fn token_seal(&self) -> Option<&TokenSeal> {
        self.0.tokens.get()
    }

    /// Returns the location: the path of the file, or the URL without user, password and
    /// parameters.
    #[must_use]
    pub fn location(&self) -> String {
        self.0.driver.location()
    }

    /// Returns whether the database exists. Creates nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn exists(&self) -> Result<bool> {
        self.0.driver.exists().await
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.0.driver
    }

    pub(crate) fn joined(&self) -> &SharedReplica {
        &self.0.joined
    }
}

/// Runs blocking work on a thread for it.
///
/// # Errors
/// `Unavailable` if the work panics, and what `work` returns.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(StoreError::unavailable)?
}

/// Returns the time `kept` before now, in microseconds.
pub(crate) fn before(now: Timestamp, kept: Duration) -> i64 {
    now.micros()
        .saturating_sub(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX))
}
