//! Counters and statistics.
//!
//! Rows of one statement are summed and sorted first: a row can be changed once, and replicas lock
//! rows in one order.

use async_trait::async_trait;
use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::Result;

use super::args::args;
use super::{CHANGE, Postgres, READ, WRITE_ONCE, on_server};
use crate::counters::Counter;
use crate::driver::{CounterRows, StatisticRows};
use crate::statistics::Statistic;

const ADD_COUNTERS: &str = "
INSERT INTO system_counters AS c (pack, name, value)
SELECT pack, name, sum(value)::bigint FROM unnest($1::text[], $2::text[], $3::bigint[]) AS n (pack, name, value)
 GROUP BY pack, name ORDER BY pack, name
ON CONFLICT (pack, name) DO UPDATE SET value = c.value + excluded.value";

const ADD_STATISTICS: &str = "
INSERT INTO system_statistics AS s (seconds, slot, pack, name, value)
SELECT seconds, slot, pack, name, sum(value)::bigint
  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[]) AS n (seconds, slot, pack, name, value)
 GROUP BY seconds, slot, pack, name ORDER BY seconds, slot, pack, name
ON CONFLICT (seconds, slot, pack, name) DO UPDATE SET value = s.value + excluded.value";

#[async_trait]
impl CounterRows for Postgres {
    async fn add_counters(&self, counters: Vec<Counter>) -> Result<()> {
        let packs: Vec<&str> = counters.iter().map(|counter| &*counter.pack).collect();
        let names: Vec<&str> = counters.iter().map(|counter| &*counter.name).collect();
        let values: Vec<i64> = counters
            .iter()
            .map(|counter| signed(counter.value))
            .collect();
        on_server!(self, WRITE_ONCE, |db| {
            Ok(db
                .execute_typed(ADD_COUNTERS, args![packs, names, values])
                .await?)
        })?;
        Ok(())
    }

    async fn counters(&self) -> Result<Vec<Counter>> {
        let found = on_server!(self, READ, |db| {
            let all = "SELECT pack, name, value FROM system_counters ORDER BY pack, name";
            let rows = db.query_typed(all, &[]).await?;
            let counter = |row: &tokio_postgres::Row| {
                Ok(Counter {
                    pack: row.try_get(0)?,
                    name: row.try_get(1)?,
                    value: unsigned(row.try_get(2)?),
                })
            };
            rows.iter().map(counter).collect()
        })?;
        Ok(found.unwrap_or_default())
    }
}

#[async_trait]
impl StatisticRows for Postgres {
    async fn add_statistics(&self, rows: Vec<Statistic>, oldest: Vec<(u32, i64)>) -> Result<()> {
        let seconds: Vec<i64> = rows.iter().map(|row| row.seconds.into()).collect();
        let slots: Vec<i64> = rows.iter().map(|row| row.slot).collect();
        let packs: Vec<&str> = rows.iter().map(|row| &*row.pack).collect();
        let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        let values: Vec<i64> = rows.iter().map(|row| signed(row.value)).collect();
        let (lengths, firsts): (Vec<i64>, Vec<i64>) = oldest
            .into_iter()
            .map(|(seconds, slot)| (i64::from(seconds), slot))
            .unzip();
        on_server!(self, CHANGE, |db| {
            let transaction = db.transaction().await?;
            transaction
                .execute_typed(ADD_STATISTICS, args![seconds, slots, packs, names, values])
                .await?;
            let old = "DELETE FROM system_statistics s USING unnest($1::bigint[], $2::bigint[]) AS o (seconds, slot)
                       WHERE s.seconds = o.seconds AND s.slot < o.slot";
            transaction
                .execute_typed(old, args![lengths, firsts])
                .await?;
            Ok(transaction.commit().await?)
        })?;
        Ok(())
    }

    async fn statistics(&self) -> Result<Vec<Statistic>> {
        let found = on_server!(self, READ, |db| {
            let all = "SELECT seconds, slot, pack, name, value FROM system_statistics ORDER BY seconds, slot, pack, name";
            let rows = db.query_typed(all, &[]).await?;
            let statistic = |row: &tokio_postgres::Row| {
                Ok(Statistic {
                    seconds: u32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(u32::MAX),
                    slot: row.try_get(1)?,
                    pack: row.try_get(2)?,
                    name: row.try_get(3)?,
                    value: unsigned(row.try_get(4)?),
                })
            };
            rows.iter().map(statistic).collect()
        })?;
        Ok(found.unwrap_or_default())
    }
}
