//! The system database (`helmdeck.db`): what must work without a memory key. Clear counters, keys of writes that a caller
//! may send twice, API tokens, credentials, jobs.
//!
//! Nothing is made until the first write; reading what is not there answers empty. It never holds an answer in the clear: who
//! stores one seals it first.

pub mod jobs;
pub mod tokens;
pub mod vault;

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use sha2::{Digest, Sha256};

use crate::drivers::sqlite::file::{DatabaseFile, FileIdentity};
use crate::drivers::sqlite::migrate::Migrations;
use crate::error::{Result, StoreError};
use crate::framing::Framed;
use crate::key::hex;

static MIGRATIONS: Migrations = Migrations {
    ledger: "system_migrations",
    steps: &[
        ("system", include_str!("migrations/system/0001_system.sql")),
        ("tokens", include_str!("migrations/system/0002_tokens.sql")),
        ("vault", include_str!("migrations/system/0003_vault.sql")),
        ("jobs", include_str!("migrations/system/0004_jobs.sql")),
    ],
};

/// How long a lock of another process is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes of the log after which it is moved into the database.
const LOG_BYTES: u64 = 1 << 20;

/// The system database. Cheap to clone; clones share the connection.
#[derive(Debug, Clone)]
pub struct System(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: DatabaseFile,
    open: Mutex<Option<(Connection, FileIdentity)>>,
}

/// A counter: of which pack, called what, how much.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// The pack; empty for what concerns none.
    pub pack: String,
    /// The counter's name.
    pub name: String,
    /// Its value, or what to add to it.
    pub value: u64,
}

/// What is known of an idempotency key when a call comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: the key is now this call's, to be finished or abandoned.
    New,
    /// A call with this key runs and has not ended.
    InFlight {
        /// The digest of its request.
        digest: Vec<u8>,
    },
    /// A call with this key has ended.
    Done {
        /// The digest of its request.
        digest: Vec<u8>,
        /// Its answer as it was given to [`System::finish`].
        answer: Option<Vec<u8>>,
    },
}

impl System {
    /// Names the database; touches nothing.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let file = DatabaseFile::new(path.into(), BUSY_TIMEOUT, LOG_BYTES, &MIGRATIONS);
        Self(Arc::new(Shared { file, open: Mutex::new(None) }))
    }

    /// Adds to counters; one that is not there starts at zero.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn add(&self, counters: Vec<Counter>) -> Result<()> {
        if counters.is_empty() {
            return Ok(());
        }
        self.write(move |db| {
            let mut add = db.prepare_cached(
                "INSERT INTO cache_counters (pack, name, value) VALUES (?1, ?2, ?3)
                 ON CONFLICT (pack, name) DO UPDATE SET value = value + ?3",
            )?;
            for counter in &counters {
                add.execute((&counter.pack, &counter.name, i64::try_from(counter.value).unwrap_or(i64::MAX)))?;
            }
            Ok(())
        })
        .await
    }

    /// Returns every counter, by pack and name.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn counters(&self) -> Result<Vec<Counter>> {
        let found = self.read(|db| {
            let mut all = db.prepare_cached("SELECT pack, name, value FROM cache_counters ORDER BY pack, name")?;
            let rows = all.query_map([], |row| {
                let value: i64 = row.get(2)?;
                Ok(Counter { pack: row.get(0)?, name: row.get(1)?, value: u64::try_from(value).unwrap_or(0) })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    /// Takes a key for a call, or says what is known of it. One of several at once gets [`Begun::New`].
    ///
    /// `scope` says whose key it is (caller and operation), so that two callers never meet. A key that is neither finished nor
    /// abandoned after `lease` is free again: its process is gone.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn begin(&self, scope: &str, key: &str, digest: &[u8], now: Timestamp, lease: Duration) -> Result<Begun> {
        let (scope, key, digest) = (scope.to_owned(), key.to_owned(), digest.to_vec());
        self.write(move |db| {
            db.prepare_cached("DELETE FROM idempotency_keys WHERE scope = ?1 AND key = ?2 AND expires_at <= ?3")?
                .execute((&scope, &key, now.micros()))?;
            let known = db
                .prepare_cached("SELECT done, digest, answer FROM idempotency_keys WHERE scope = ?1 AND key = ?2")?
                .query_row((&scope, &key), |row| {
                    let (done, digest) = (row.get(0)?, row.get(1)?);
                    Ok(if done { Begun::Done { digest, answer: row.get(2)? } } else { Begun::InFlight { digest } })
                })
                .optional()?;
            if let Some(known) = known {
                return Ok(known);
            }
            db.prepare_cached(
                "INSERT INTO idempotency_keys (scope, key, digest, done, expires_at) VALUES (?1, ?2, ?3, FALSE, ?4)",
            )?
            .execute((&scope, &key, &digest, now.saturating_add(lease).micros()))?;
            Ok(Begun::New)
        })
        .await
    }

    /// Ends a call that [`System::begin`] let through: the key now answers [`Begun::Done`] for `keep`.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn finish(
        &self,
        scope: &str,
        key: &str,
        answer: Option<Vec<u8>>,
        now: Timestamp,
        keep: Duration,
    ) -> Result<()> {
        let (scope, key) = (scope.to_owned(), key.to_owned());
        self.write(move |db| {
            db.prepare_cached(
                "UPDATE idempotency_keys SET done = TRUE, answer = ?3, expires_at = ?4 WHERE scope = ?1 AND key = ?2",
            )?
            .execute((&scope, &key, &answer, now.saturating_add(keep).micros()))?;
            Ok(())
        })
        .await
    }

    /// Frees a key whose call had no effect, so that it may be tried again.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn abandon(&self, scope: &str, key: &str) -> Result<()> {
        let (scope, key) = (scope.to_owned(), key.to_owned());
        self.write(move |db| {
            db.prepare_cached("DELETE FROM idempotency_keys WHERE scope = ?1 AND key = ?2 AND NOT done")?
                .execute((&scope, &key))?;
            Ok(())
        })
        .await
    }

    /// Deletes what is over and says how many rows: keys and jobs that have ended, uses of the vault and API tokens that are
    /// kept no longer ([`vault::USES_KEPT`], [`tokens::TOKENS_KEPT`]). Makes no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn sweep(&self, now: Timestamp) -> Result<u64> {
        let gone = self.read(move |db| {
            let keys =
                db.prepare_cached("DELETE FROM idempotency_keys WHERE expires_at <= ?1")?.execute([now.micros()])?;
            Ok(keys + vault::sweep(db, now)? + tokens::sweep(db, now)? + jobs::sweep(db, now)?)
        });
        Ok(gone.await?.unwrap_or(0) as u64)
    }

    /// Returns the scope of a caller's keys for an operation. It says whose they are to who knows the caller, and names nobody.
    #[must_use]
    pub fn scope(tenant: &str, subject: &str, operation: &str) -> String {
        format!("{}/{operation}", caller(tenant, subject))
    }

    /// Deletes every key of a caller ([`System::scope`]) with its answer and says how many; makes no file. The bytes are
    /// overwritten, and the log is emptied unless somebody reads at the moment.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget(&self, tenant: &str, subject: &str) -> Result<u64> {
        let caller = caller(tenant, subject);
        let gone = self.read(move |db| {
            let gone = db
                .prepare_cached("DELETE FROM idempotency_keys WHERE scope >= ?1 || '/' AND scope < ?1 || '0'")?
                .execute([&caller])?;
            if gone > 0 {
                db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            }
            Ok(gone)
        });
        Ok(gone.await?.unwrap_or(0) as u64)
    }

    async fn write<T: Send + 'static>(
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

    /// Runs work if the database is there.
    async fn read<T: Send + 'static>(
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

/// Returns the time that lies so long before now, in microseconds.
fn before(now: Timestamp, kept: Duration) -> i64 {
    now.micros().saturating_sub(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX))
}

/// Returns what stands for a caller: half of a SHA-256, in hex.
fn caller(tenant: &str, subject: &str) -> String {
    let framed = Framed::new("helmdeck/system/caller").text(tenant).text(subject);
    hex(&Sha256::digest(framed.as_slice())[..16])
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(StoreError::unavailable)?
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const NOW: Timestamp = Timestamp(1_000_000);

    fn counter(pack: &str, name: &str, value: u64) -> Counter {
        Counter { pack: pack.into(), name: name.into(), value }
    }

    #[tokio::test]
    async fn reading_makes_no_file_and_writing_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/helmdeck.db");
        let system = System::at(&path);
        assert!(system.counters().await.unwrap().is_empty());
        assert_eq!(system.sweep(NOW).await.unwrap(), 0);
        system.add(Vec::new()).await.unwrap();
        assert!(!folder.path().join("new").exists());
        system.add(vec![counter("p", "hits", 1)]).await.unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.path().join("new").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[tokio::test]
    async fn counters_add_up_over_two_handles_and_a_deleted_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        let (one, two) = (System::at(&path), System::at(&path));
        one.add(vec![counter("p", "hits", 2), counter("", "all", 1)]).await.unwrap();
        two.add(vec![counter("p", "hits", 3)]).await.unwrap();
        assert_eq!(one.counters().await.unwrap(), [counter("", "all", 1), counter("p", "hits", 5)]);
        for name in ["helmdeck.db", "helmdeck.db-wal", "helmdeck.db-shm"] {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
        assert!(one.counters().await.unwrap().is_empty());
        one.add(vec![counter("p", "hits", 1)]).await.unwrap();
        assert_eq!(two.counters().await.unwrap(), [counter("p", "hits", 1)]);
    }

    #[tokio::test]
    async fn a_key_goes_from_new_over_in_flight_to_done_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("helmdeck.db"));
        let begin = |key: &'static str, now| {
            let system = system.clone();
            async move { system.begin("alice/p", key, b"digest", now, MINUTE).await.unwrap() }
        };
        assert_eq!(begin("k", NOW).await, Begun::New);
        assert_eq!(begin("k", NOW).await, Begun::InFlight { digest: b"digest".into() });
        assert_eq!(begin("other", NOW).await, Begun::New);
        assert_eq!(system.begin("bob/p", "k", b"x", NOW, MINUTE).await.unwrap(), Begun::New);
        system.finish("alice/p", "k", Some(b"sealed".to_vec()), NOW, 2 * MINUTE).await.unwrap();
        let done = Begun::Done { digest: b"digest".into(), answer: Some(b"sealed".into()) };
        assert_eq!(begin("k", NOW.saturating_add(MINUTE)).await, done);
        system.abandon("alice/p", "k").await.unwrap();
        assert_eq!(begin("k", NOW).await, done, "what is done cannot be abandoned");
        assert_eq!(begin("k", NOW.saturating_add(2 * MINUTE)).await, Begun::New);
    }

    #[tokio::test]
    async fn an_abandoned_key_and_one_whose_lease_ended_are_free() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("helmdeck.db"));
        assert_eq!(system.begin("s", "k", b"d", NOW, MINUTE).await.unwrap(), Begun::New);
        system.abandon("s", "k").await.unwrap();
        assert_eq!(system.begin("s", "k", b"d", NOW, MINUTE).await.unwrap(), Begun::New);
        assert_eq!(system.begin("s", "k", b"d", NOW.saturating_add(MINUTE), MINUTE).await.unwrap(), Begun::New);
        assert_eq!(system.sweep(NOW.saturating_add(MINUTE)).await.unwrap(), 0);
        assert_eq!(system.sweep(NOW.saturating_add(2 * MINUTE)).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn forgetting_takes_all_keys_of_one_caller_and_leaves_no_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        let system = System::at(&path);
        assert_eq!(system.forget("t", "alice").await.unwrap(), 0);
        assert!(!path.exists());
        for (subject, key) in [("alice", "one"), ("alice", "two"), ("bob", "one")] {
            let scope = System::scope("t", subject, "rest");
            assert!(!scope.contains(subject));
            assert_eq!(system.begin(&scope, key, b"digest", NOW, MINUTE).await.unwrap(), Begun::New);
            let answer = format!("the answer to {subject}").into_bytes();
            system.finish(&scope, key, Some(answer), NOW, MINUTE).await.unwrap();
        }
        assert_eq!(system.forget("t", "alice").await.unwrap(), 2);
        assert_eq!(system.forget("t", "alice").await.unwrap(), 0);
        let bytes: Vec<u8> = ["helmdeck.db", "helmdeck.db-wal"]
            .iter()
            .flat_map(|name| std::fs::read(folder.path().join(name)).unwrap_or_default())
            .collect();
        let holds = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(holds("the answer to bob") && !holds("the answer to alice"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_of_many_at_once_gets_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        let racers: Vec<_> = (0..8)
            .map(|_| {
                let system = System::at(&path);
                tokio::spawn(async move { system.begin("s", "k", b"d", NOW, MINUTE).await.unwrap() == Begun::New })
            })
            .collect();
        let mut new = 0;
        for racer in racers {
            new += u32::from(racer.await.unwrap());
        }
        assert_eq!(new, 1);
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_a_clear_error_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        std::fs::write(&path, "not a database, but a file of somebody's").unwrap();
        let error = System::at(&path).add(vec![counter("p", "n", 1)]).await.unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt(message) if message.contains("helmdeck.db")), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "not a database, but a file of somebody's");
    }
}
