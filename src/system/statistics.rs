//! Statistics of calls: additive numbers by slot of time and pack.

use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::Result;

use crate::database::System;

/// A number of one pack in one slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statistic {
    /// Length of the slot, in seconds.
    pub seconds: u32,
    /// Number of the slot since 1970.
    pub slot: i64,
    /// The pack.
    pub pack: String,
    /// Name of the number.
    pub name: String,
    /// Its value, or the amount to add to it.
    pub value: u64,
}

impl System {
    /// Adds to statistics, and deletes those of old slots.
    ///
    /// `oldest` has the number of the first slot that is kept, by the length of a slot in seconds.
    /// Without a database nothing is kept: it creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn add_statistics(&self, rows: Vec<Statistic>, oldest: Vec<(u32, i64)>) -> Result<()> {
        let adding = self.read(move |db| {
            // The only writer of this connection, so a plain transaction is enough.
            let transaction = db.unchecked_transaction()?;
            let mut add = transaction.prepare_cached(
                "INSERT INTO statistics (seconds, slot, pack, name, value) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (seconds, slot, pack, name) DO UPDATE SET value = value + ?5",
            )?;
            for row in &rows {
                add.execute((row.seconds, row.slot, &row.pack, &row.name, signed(row.value)))?;
            }
            drop(add);
            for (seconds, slot) in oldest {
                transaction.execute("DELETE FROM statistics WHERE seconds = ?1 AND slot < ?2", (seconds, slot))?;
            }
            Ok(transaction.commit()?)
        });
        adding.await.map(Option::unwrap_or_default)
    }

    /// Returns all statistics.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn statistics(&self) -> Result<Vec<Statistic>> {
        let found = self.read(|db| {
            let mut all = db.prepare_cached("SELECT seconds, slot, pack, name, value FROM statistics")?;
            let rows = all.query_map([], |row| {
                Ok(Statistic {
                    seconds: row.get(0)?,
                    slot: row.get(1)?,
                    pack: row.get(2)?,
                    name: row.get(3)?,
                    value: unsigned(row.get(4)?),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counter;

    #[tokio::test]
    async fn statistics_add_up_and_old_ones_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("helmdeck.db"));
        let row = |slot, value| Statistic { seconds: 60, slot, pack: "p.q".into(), name: "calls".into(), value };
        system.add_statistics(vec![row(1, 1)], Vec::new()).await.unwrap();
        assert!(system.statistics().await.unwrap().is_empty());
        system.add(vec![Counter { pack: "p.q".into(), name: "hit".into(), value: 1 }]).await.unwrap();
        system.add_statistics(vec![row(1, 1), row(2, 2)], Vec::new()).await.unwrap();
        system.add_statistics(vec![row(2, 3)], vec![(60, 2), (900, 9)]).await.unwrap();
        assert_eq!(system.statistics().await.unwrap(), [row(2, 5)]);
    }
}
