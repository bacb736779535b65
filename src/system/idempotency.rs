//! Idempotency keys, each with the sealed answer of the call that used it.

use std::time::Duration;

use helmdeck_core::{Timestamp, hex};
use helmdeck_memory::Result;
use helmdeck_memory::framing::Framed;
use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use crate::database::{System, empty_log};

/// State of an idempotency key when a call arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Unknown before. This call now holds the key, and must finish or abandon it.
    New,
    /// A call with this key is running.
    InFlight {
        /// The digest of its request.
        digest: Vec<u8>,
    },
    /// A call with this key has ended.
    Done {
        /// The digest of its request.
        digest: Vec<u8>,
        /// Its answer, as given to [`System::finish`].
        answer: Option<Vec<u8>>,
    },
}

impl System {
    /// Takes a key for a call, or returns its state. Of several concurrent calls, one gets [`Begun::New`].
    ///
    /// `scope` ([`System::scope`]) separates callers and operations. A key that is neither finished nor abandoned after
    /// `lease` is free again: its process is gone.
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

    /// Finishes a call that [`System::begin`] accepted.
    ///
    /// From now on [`System::begin`] returns [`Begun::Done`], for `keep`.
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

    /// Frees a key whose call had no effect, so that the call can be retried.
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

    /// Returns the scope of a caller's keys for an operation: a digest, without the caller's name.
    #[must_use]
    pub fn scope(tenant: &str, subject: &str, operation: &str) -> String {
        format!("{}/{operation}", caller(tenant, subject))
    }

    /// Deletes every key of a caller ([`System::scope`]) with its answer, and returns how many.
    ///
    /// Creates no file. The bytes are overwritten, and the log is emptied unless a reader prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget(&self, tenant: &str, subject: &str) -> Result<u64> {
        let caller = caller(tenant, subject);
        let deleted = self.read(move |db| {
            let deleted = db
                .prepare_cached("DELETE FROM idempotency_keys WHERE scope >= ?1 || '/' AND scope < ?1 || '0'")?
                .execute([&caller])?;
            if deleted > 0 {
                empty_log(db)?;
            }
            Ok(deleted)
        });
        Ok(deleted.await?.unwrap_or(0) as u64)
    }
}

/// Deletes expired keys.
pub(crate) fn sweep(db: &Connection, now: Timestamp) -> Result<usize> {
    Ok(db.prepare_cached("DELETE FROM idempotency_keys WHERE expires_at <= ?1")?.execute([now.micros()])?)
}

/// Returns a digest of a caller: half of a SHA-256, in hex.
fn caller(tenant: &str, subject: &str) -> String {
    let framed = Framed::new("helmdeck/system/caller").text(tenant).text(subject);
    hex(&Sha256::digest(framed.as_slice())[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const NOW: Timestamp = Timestamp(1_000_000);

    #[tokio::test]
    async fn a_key_is_new_then_in_flight_then_done_then_expired() {
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
    async fn abandoned_and_expired_keys_are_free() {
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
    async fn forget_deletes_all_keys_and_bytes_of_one_caller() {
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
    async fn one_concurrent_call_gets_the_key() {
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
}
