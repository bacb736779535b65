//! Journal: what was promised and a database has not done yet, in a file of this machine.
//!
//! A database can be away for minutes, and the process can end meanwhile. What it owes then (a
//! purge, the end of a call) is written here before the answer leaves, and removed when it is done.
//! Any process with the file finishes it: entries are work that does no harm when it is done twice.
//! The first entry creates the file.

use std::path::PathBuf;
use std::time::Duration;

use helmdeck_memory::drivers::sqlite::migrate::Migrations;
use helmdeck_memory::{KeyRing, Namespace, Result};

use crate::drivers::sqlite::local::LocalFile;

static MIGRATIONS: Migrations = Migrations {
    ledger: "journal_migrations",
    steps: &[("journal", include_str!("migrations/sqlite/journal.sql"))],
    additions: &[],
};

/// Purpose of the key that seals entries.
const PURPOSE: &str = "journal";

/// The journal. Cheap to clone; clones share their connection.
#[derive(Debug, Clone)]
pub struct Journal {
    file: LocalFile,
    /// Seals entries; `None` = there is no memory key, and entries are digests only.
    ring: Option<KeyRing>,
}

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its number.
    pub id: i64,
    /// What [`Journal::add`] got; `None` if no key at hand opens it.
    pub entry: Option<Vec<u8>>,
}

impl Journal {
    /// Returns the journal in a file, without touching it. Entries are sealed with `ring`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>, busy_timeout: Duration, ring: Option<KeyRing>) -> Self {
        Self {
            file: LocalFile::new(path.into(), busy_timeout, &MIGRATIONS),
            ring,
        }
    }

    /// Returns whether there is a file, so that there may be entries.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.file.path().exists()
    }

    /// Adds an entry, and returns its number once the entry is on the disk.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn add(&self, kind: &'static str, entry: &[u8]) -> Result<i64> {
        let entry = match &self.ring {
            Some(ring) => ring.seal_blob(&whole(), PURPOSE, kind.as_bytes(), entry)?,
            None => entry.to_vec(),
        };
        let added = self.file.write(move |db| {
            db.prepare_cached("INSERT INTO journal (kind, entry) VALUES (?1, ?2)")?
                .execute((kind, entry))?;
            Ok(db.last_insert_rowid())
        });
        added.await
    }

    /// Returns the entries of a kind, oldest first. Creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn entries(&self, kind: &'static str) -> Result<Vec<JournalEntry>> {
        let rows = self.file.read(move |db| {
            let mut statement =
                db.prepare_cached("SELECT id, entry FROM journal WHERE kind = ?1 ORDER BY id")?;
            let rows = statement.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<Vec<(i64, Vec<u8>)>>>()?)
        });
        let open = |entry: Vec<u8>| match &self.ring {
            Some(ring) => ring
                .open_blob(&whole(), PURPOSE, kind.as_bytes(), &entry)
                .ok(),
            None => Some(entry),
        };
        Ok(rows
            .await?
            .unwrap_or_default()
            .into_iter()
            .map(|(id, entry)| JournalEntry {
                id,
                entry: open(entry),
            })
            .collect())
    }

    /// Removes an entry: it is done.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn remove(&self, id: i64) -> Result<()> {
        let removed = self.file.read(move |db| {
            db.prepare_cached("DELETE FROM journal WHERE id = ?1")?
                .execute([id])?;
            Ok(())
        });
        removed.await.map(drop)
    }
}

/// Namespace of the key of entries, which concern any caller.
fn whole() -> Namespace {
    Namespace::of_caller(&helmdeck_core::Identity::local())
}

#[cfg(test)]
mod tests {
    use helmdeck_testkit::keyring;

    use super::*;

    #[tokio::test]
    async fn entries_outlive_the_process_and_are_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let journal = |ring| Journal::at(path.clone(), Duration::from_secs(10), ring);
        let first = journal(Some(keyring()));
        assert!(first.entries("purge").await.unwrap().is_empty());
        first.remove(7).await.unwrap();
        assert!(!path.exists(), "reading creates nothing");
        let ids = [
            first.add("purge", b"canary one").await.unwrap(),
            first.add("purge", b"canary two").await.unwrap(),
        ];
        first.add("end", b"canary three").await.unwrap();
        drop(first);

        let second = journal(Some(keyring()));
        let entries = second.entries("purge").await.unwrap();
        let texts: Vec<_> = entries
            .iter()
            .map(|entry| entry.entry.as_deref().unwrap())
            .collect();
        assert_eq!(texts, [b"canary one", b"canary two"]);
        assert_eq!(
            entries.iter().map(|entry| entry.id).collect::<Vec<_>>(),
            ids
        );
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(6).any(|part| part == b"canary"));
        }
        let other = KeyRing::parse(("KEY", &"77".repeat(32)), None).unwrap();
        let blind = journal(Some(other)).entries("purge").await.unwrap();
        assert!(blind.iter().all(|entry| entry.entry.is_none()) && blind.len() == 2);
        second.remove(ids[0]).await.unwrap();
        assert_eq!(second.entries("purge").await.unwrap().len(), 1);
        assert_eq!(second.entries("end").await.unwrap().len(), 1);
    }
}
