//! Connection pool: one connection for each thread that uses the database, opened when needed.
//!
//! When the file at the path is no longer the one that was opened (deleted, replaced), all
//! connections are closed before anything is opened again. SQLite keeps its locks per process and
//! file: a connection to the new file beside one to the old would pull the shared memory from under
//! it.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use helmdeck_core::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::error::spoils_connection;
use super::file::{DatabaseFile, FileIdentity};
use super::free_row_ids::FreeRowIds;
use crate::error::{Result, StoreError};
use crate::requests::Canary;

/// How often a connection looks whether the file is still the same, at most.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The connection that writes; readers follow.
pub(super) const WRITER: usize = 0;

/// The connections of one store.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    file: DatabaseFile,
    /// Held shared while a connection is used, exclusively while all are closed.
    gate: RwLock<()>,
    connections: Vec<Mutex<Option<PooledConnection>>>,
    current: Mutex<Option<FileIdentity>>,
    canary: Mutex<Option<Canary>>,
    start: Instant,
    /// When the file was looked at last, in milliseconds since `start`.
    looked: AtomicU64,
    /// Added to the generation in the file, so that it grows over a replaced file too.
    base: AtomicU64,
    /// The largest generation that was given out.
    highest: AtomicU64,
}

/// A connection and what it remembers.
#[derive(Debug)]
pub(super) struct PooledConnection {
    /// The connection.
    pub(super) connection: Connection,
    /// `PRAGMA data_version` and the generation that was read under it.
    generation: Option<(i64, u64)>,
    /// Whether commits wait for the disk (`synchronous = FULL`).
    durable: Option<bool>,
    /// Row ids to use again, for the connection that writes.
    pub(super) free_row_ids: FreeRowIds,
}

impl PooledConnection {
    /// Sets whether a commit waits for the disk: it does for what cannot be computed again.
    pub(super) fn set_durable(&mut self, durable: bool) -> Result<()> {
        if self.durable != Some(durable) {
            self.connection.execute_batch(if durable {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
            self.durable = Some(durable);
        }
        Ok(())
    }
}

impl ConnectionPool {
    /// Opens the file and makes room for one writer and `readers` readers.
    pub(super) fn open(file: DatabaseFile, readers: usize) -> Result<Self> {
        let pool = Self {
            file,
            gate: RwLock::new(()),
            connections: (0..=readers).map(|_| Mutex::new(None)).collect(),
            current: Mutex::new(None),
            canary: Mutex::new(None),
            start: Instant::now(),
            looked: AtomicU64::new(0),
            base: AtomicU64::new(0),
            highest: AtomicU64::new(0),
        };
        pool.start_over()?;
        Ok(pool)
    }

    /// Returns the file.
    pub(super) const fn file(&self) -> &DatabaseFile {
        &self.file
    }

    /// Runs work on a connection. With `look` the file is checked every time, not only now and
    /// then.
    pub(super) fn with<T>(
        &self,
        index: usize,
        look: bool,
        work: impl FnOnce(&mut PooledConnection) -> Result<T>,
    ) -> Result<T> {
        // A connection that has to be opened anew must be to the file that the others have open.
        if look || lock(&self.connections[index]).is_none() || self.time_to_look() {
            self.start_over_if_replaced()?;
        }
        let _shared = self.gate.read();
        let mut slot = lock(&self.connections[index]);
        if slot.is_none() {
            *slot = Some(self.connect(index)?);
        }
        let Some(pooled) = slot.as_mut() else {
            return Err(StoreError::Closed);
        };
        let result = work(pooled);
        if result.as_ref().is_err_and(spoils_connection) {
            *slot = None;
        }
        result
    }

    /// Closes one connection.
    pub(super) fn close(&self, index: usize) {
        *lock(&self.connections[index]) = None;
    }

    /// Gives the store its canary and returns the one that it has.
    pub(super) fn set_canary(&self, fresh: Canary) -> Result<Canary> {
        let stored = self.with(WRITER, true, |pooled| plant(&pooled.connection, &fresh))?;
        if stored.key_id == fresh.key_id {
            // A file that replaces this one must prove the same key.
            *lock(&self.canary) = Some(stored.clone());
        }
        Ok(stored)
    }

    /// Puts a canary in the place of the store's if it has no live row; says whether it did.
    pub(super) fn adopt_if_empty(&self, canary: Canary, now: Timestamp) -> Result<bool> {
        let adopted = self.with(WRITER, true, |pooled| {
            pooled.set_durable(true)?;
            let changed = pooled.connection.execute(
                "UPDATE memory_canary SET key_id = ?1, sealed = ?2 WHERE NOT EXISTS
                 (SELECT 1 FROM memory_entries WHERE expires_at IS NULL OR expires_at > ?3)",
                (&canary.key_id, &canary.sealed, now.micros()),
            )?;
            Ok(changed > 0)
        })?;
        if adopted {
            *lock(&self.canary) = Some(canary);
        }
        Ok(adopted)
    }

    /// Returns whether another process holds the lock for writing, and for longer than a commit
    /// takes.
    pub(super) fn is_locked(&self) -> Result<bool> {
        self.with(WRITER, false, |pooled| {
            pooled.connection.busy_timeout(self.file.brief_wait())?;
            let tried = pooled.connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
            pooled.connection.busy_timeout(self.file.busy_timeout())?;
            match tried.map_err(StoreError::from) {
                Ok(()) => Ok(false),
                Err(error) => Ok(error.trouble() == "locked"),
            }
        })
    }

    /// Replaces the canary of the store, and the one that a file at the same path must prove later.
    pub(super) fn replace_canary(&self, canary: Canary) -> Result<()> {
        self.with(WRITER, true, |pooled| {
            pooled.set_durable(true)?;
            pooled.connection.execute(
                "INSERT INTO memory_canary (id, key_id, sealed) VALUES (1, ?1, ?2)
                 ON CONFLICT (id) DO UPDATE SET key_id = ?1, sealed = ?2",
                (&canary.key_id, &canary.sealed),
            )?;
            Ok(())
        })?;
        *lock(&self.canary) = Some(canary);
        Ok(())
    }

    /// Returns the generation, from a connection that reads.
    pub(super) fn generation(&self, pooled: &mut PooledConnection) -> Result<u64> {
        let version: i64 = pooled
            .connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        let value = match pooled.generation {
            Some((seen, value)) if seen == version => value,
            _ => {
                let value: i64 = pooled
                    .connection
                    .prepare_cached("SELECT value FROM memory_generation")?
                    .query_row([], |row| row.get(0))?;
                let value = u64::try_from(value).unwrap_or(0);
                pooled.generation = Some((version, value));
                value
            }
        };
        let sum = self.base.load(Ordering::SeqCst).saturating_add(value);
        self.highest.fetch_max(sum, Ordering::SeqCst);
        Ok(sum)
    }

    fn connect(&self, index: usize) -> Result<PooledConnection> {
        // All connections are to one file: what one writes, the others have to see.
        let current = lock(&self.current).ok_or(StoreError::Closed)?;
        let connection = if index == WRITER {
            self.file.open_again(&current)?
        } else {
            self.file.open_for_reading(&current)?
        };
        Ok(PooledConnection {
            connection,
            generation: None,
            durable: None,
            free_row_ids: FreeRowIds::default(),
        })
    }

    fn time_to_look(&self) -> bool {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked.load(Ordering::Relaxed);
        now.saturating_sub(looked) >= LOOK_EVERY.as_millis() as u64
            && self
                .looked
                .compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    fn start_over_if_replaced(&self) -> Result<()> {
        let current = *lock(&self.current);
        if current.is_some_and(|current| self.file.is_still(&current)) {
            return Ok(());
        }
        self.start_over()
    }

    /// Closes every connection, then opens what is at the path now.
    fn start_over(&self) -> Result<()> {
        let _alone = self.gate.write();
        let mut current = lock(&self.current);
        if current.is_some_and(|current| self.file.is_still(&current)) {
            // Another connection was faster.
            return Ok(());
        }
        for connection in &self.connections {
            *lock(connection) = None;
        }
        let gone = *current;
        let (connection, identity) = self.file.open_for_writing(gone)?;
        if let Some(canary) = lock(&self.canary).clone() {
            let stored = plant(&connection, &canary)?;
            if stored.key_id != canary.key_id {
                // Its rows would not open here, and ours would not open for the process that wrote
                // it.
                return Err(StoreError::WrongKey {
                    store: stored.key_id,
                    given: canary.key_id,
                });
            }
        }
        *lock(&self.connections[WRITER]) = Some(PooledConnection {
            connection,
            generation: None,
            durable: None,
            free_row_ids: FreeRowIds::default(),
        });
        *current = Some(identity);
        if gone.is_some() {
            self.base.store(
                self.highest.load(Ordering::SeqCst).saturating_add(1),
                Ordering::SeqCst,
            );
            tracing::warn!(path = %self.file.path().display(), "the memory database was replaced; it was opened again");
        }
        Ok(())
    }
}

/// Returns the canary; writes `fresh` if there is none.
fn plant(connection: &Connection, fresh: &Canary) -> Result<Canary> {
    let read = || {
        connection
            .query_row("SELECT key_id, sealed FROM memory_canary", [], |row| {
                Ok(Canary {
                    key_id: row.get(0)?,
                    sealed: row.get(1)?,
                })
            })
            .optional()
    };
    if let Some(stored) = read()? {
        return Ok(stored);
    }
    connection.execute(
        "INSERT INTO memory_canary (id, key_id, sealed) VALUES (1, ?1, ?2) ON CONFLICT DO NOTHING",
        (&fresh.key_id, &fresh.sealed),
    )?;
    read()?.ok_or_else(|| {
        StoreError::Corrupt("the row that proves the key cannot be written".to_owned())
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
