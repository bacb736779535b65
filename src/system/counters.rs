//! Clear counters of the cache, by pack and name.

use helmdeck_memory::Result;

use crate::database::System;
use helmdeck_core::numbers::{signed, unsigned};

/// A counter of a pack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// The pack; empty for a counter of no single pack.
    pub pack: String,
    /// The counter's name.
    pub name: String,
    /// Its value, or the amount to add to it.
    pub value: u64,
}

impl System {
    /// Adds to counters. A new counter starts at zero.
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
                add.execute((&counter.pack, &counter.name, signed(counter.value)))?;
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
                Ok(Counter { pack: row.get(0)?, name: row.get(1)?, value: unsigned(row.get(2)?) })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use helmdeck_core::Timestamp;
    use helmdeck_memory::StoreError;

    use super::*;

    fn counter(pack: &str, name: &str, value: u64) -> Counter {
        Counter { pack: pack.into(), name: name.into(), value }
    }

    #[tokio::test]
    async fn only_writing_makes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/helmdeck.db");
        let system = System::at(&path);
        assert!(system.counters().await.unwrap().is_empty());
        assert_eq!(system.sweep(Timestamp(1_000_000)).await.unwrap(), 0);
        system.add(Vec::new()).await.unwrap();
        assert!(!folder.path().join("new").exists());
        system.add(vec![counter("p", "hits", 1)]).await.unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.path().join("new").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[tokio::test]
    async fn counters_add_up_over_handles_and_a_deleted_file() {
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
    async fn a_foreign_file_is_an_error_and_stays_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        std::fs::write(&path, "not a database, but a foreign file").unwrap();
        let error = System::at(&path).add(vec![counter("p", "n", 1)]).await.unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt(message) if message.contains("helmdeck.db")), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "not a database, but a foreign file");
    }
}
