//! The system database in a file, for the processes of one machine.
//!
//! The first write creates the file; reading without a file finds nothing. Deleted rows are
//! overwritten.

mod counters;
mod jobs;
mod keys;
pub(crate) mod local;
mod locks;
mod queue;
#[cfg(test)]
mod tests;
mod tokens;
mod transfer;
mod vault;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_memory::Result;
use helmdeck_memory::drivers::sqlite::migrate::Migrations;
use rusqlite::Connection;

use self::local::LocalFile;
use self::locks::FileLock;
use crate::driver::{Driver, SweepTimes};
use crate::replica::Lease;
use crate::system::blocking;

static MIGRATIONS: Migrations = Migrations {
    ledger: "system_migrations",
    steps: &[
        (
            "system",
            include_str!("../../migrations/sqlite/0001_system.sql"),
        ),
        (
            "tokens",
            include_str!("../../migrations/sqlite/0002_tokens.sql"),
        ),
        (
            "vault",
            include_str!("../../migrations/sqlite/0003_vault.sql"),
        ),
        (
            "jobs",
            include_str!("../../migrations/sqlite/0004_jobs.sql"),
        ),
        (
            "statistics",
            include_str!("../../migrations/sqlite/0005_statistics.sql"),
        ),
        (
            "owners",
            include_str!("../../migrations/sqlite/0006_owners.sql"),
        ),
    ],
    additions: &[
        (
            "schedules",
            include_str!("../../migrations/sqlite/added_schedules.sql"),
        ),
        (
            "ancestors",
            include_str!("../../migrations/sqlite/added_ancestors.sql"),
        ),
        (
            "heads",
            include_str!("../../migrations/sqlite/added_heads.sql"),
        ),
        (
            "token seals",
            include_str!("../../migrations/sqlite/added_token_seals.sql"),
        ),
    ],
};

/// The driver.
#[derive(Debug)]
pub(crate) struct Sqlite(LocalFile);

impl Sqlite {
    /// Returns the database at a path, without touching the file. It waits for another process's
    /// lock for `busy_timeout`.
    pub(crate) fn at(path: PathBuf, busy_timeout: Duration) -> Self {
        Self(LocalFile::new(path, busy_timeout, &MIGRATIONS))
    }

    /// Returns the folder with the locks of live processes.
    fn locks(&self) -> PathBuf {
        self.0.path().with_file_name("jobs")
    }
}

/// Moves the log into the database and empties it, unless a reader prevents it.
///
/// # Errors
/// `Unavailable`, `Corrupt`.
fn empty_log(db: &Connection) -> Result<()> {
    Ok(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

#[async_trait]
impl Driver for Sqlite {
    fn location(&self) -> String {
        self.0.path().display().to_string()
    }

    async fn exists(&self) -> Result<bool> {
        Ok(self.0.read(|_| Ok(())).await?.is_some())
    }

    async fn live_replicas(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn join(&self) -> Result<Arc<dyn Lease>> {
        let folder = self.locks();
        Ok(Arc::new(blocking(move || FileLock::take(&folder)).await?))
    }

    async fn sweep(&self, ended: SweepTimes) -> Result<u64> {
        let deleted = self.0.read(move |db| {
            let delete = |sql, time: i64| -> Result<usize> { Ok(db.prepare_cached(sql)?.execute([time])?) };
            Ok(delete("DELETE FROM idempotency_keys WHERE expires_at <= ?1", ended.now)?
                + delete("DELETE FROM vault_uses WHERE last_at < ?1", ended.uses)?
                + delete("DELETE FROM api_tokens WHERE revoked_at < ?1 OR expires_at < ?1", ended.tokens)?
                + delete("DELETE FROM jobs WHERE ended_at IS NOT NULL AND expires_at <= ?1", ended.now)?
                + delete(
                    "DELETE FROM schedule_runs WHERE due_at < ?1
                     AND due_at < (SELECT max(due_at) FROM schedule_runs r WHERE r.pack = schedule_runs.pack)",
                    ended.schedules,
                )?)
        });
        Ok(deleted.await?.unwrap_or(0) as u64)
    }
}
