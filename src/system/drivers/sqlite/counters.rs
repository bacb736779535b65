//! Counters and statistics.

use async_trait::async_trait;
use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::Result;

use super::Sqlite;
use crate::counters::Counter;
use crate::driver::{CounterRows, StatisticRows};
use crate::statistics::Statistic;

#[async_trait]
impl CounterRows for Sqlite {
    async fn add_counters(&self, counters: Vec<Counter>) -> Result<()> {
        self.0
            .write(move |db| {
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

    async fn counters(&self) -> Result<Vec<Counter>> {
        let found = self.0.read(|db| {
            let mut all = db.prepare_cached(
                "SELECT pack, name, value FROM cache_counters ORDER BY pack, name",
            )?;
            let rows = all.query_map([], |row| {
                Ok(Counter {
                    pack: row.get(0)?,
                    name: row.get(1)?,
                    value: unsigned(row.get(2)?),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }
}

#[async_trait]
impl StatisticRows for Sqlite {
    async fn add_statistics(&self, rows: Vec<Statistic>, oldest: Vec<(u32, i64)>) -> Result<()> {
        let adding = self.0.read(move |db| {
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

    async fn statistics(&self) -> Result<Vec<Statistic>> {
        let found = self.0.read(|db| {
            let mut all =
                db.prepare_cached("SELECT seconds, slot, pack, name, value FROM statistics")?;
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
