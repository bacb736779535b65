//! Totals from counters: their cost depends on namespaces and expired rows, not on all rows.

use std::collections::BTreeMap;

use deadpool_postgres::Object;
use helmdeck_core::Timestamp;

use super::error::Outcome;
use super::queries::all;
use super::rows::{self, get, unsigned};
use crate::ops::{NamespaceStats, Stats};

/// Expired rows that are not swept yet and still counted.
const ENDED: &str =
    "SELECT space_id, key_id, count(*), sum(least(greatest(cost, 0), 4294967296))::bigint FROM memory_entries
                      WHERE expires_at <= $1 GROUP BY space_id, key_id";
const SPACES: &str = "SELECT id, tenant, subject, session, kind, rows, bytes FROM memory_spaces";
const KEYS: &str = "SELECT key_id, sum(rows)::bigint FROM memory_keys GROUP BY key_id";
/// The tables with their indexes and what is kept beside them.
const DISK: &str = "SELECT sum(pg_total_relation_size(name::regclass))::bigint
                      FROM unnest(ARRAY['memory_spaces', 'memory_entries', 'memory_tags', 'memory_keys']) AS name";

/// Rows and bytes that have ended, of each space.
async fn ended(db: &Object, now: Timestamp) -> Outcome<Vec<(i64, String, u64, u64)>> {
    let found = all(db, ENDED, &[&now.micros()]).await?;
    let read =
        |row| (get(row, 0).unwrap_or_default(), get(row, 1).unwrap_or_default(), unsigned(row, 2), unsigned(row, 3));
    Ok(found.iter().map(read).collect())
}

/// Returns the totals of each namespace.
pub(super) async fn namespaces(db: &Object, now: Timestamp) -> Outcome<Vec<NamespaceStats>> {
    let mut gone: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    for (space, _, rows, bytes) in ended(db, now).await? {
        let (all_rows, all_bytes) = gone.entry(space).or_default();
        *all_rows += rows;
        *all_bytes += bytes;
    }
    let found = all(db, SPACES, &[]).await?;
    let held = found.iter().filter_map(|row| {
        let (namespace, kind) = rows::space(row, 1)?;
        let (gone_rows, gone_bytes) = gone.get(&get(row, 0)?).copied().unwrap_or_default();
        let rows = unsigned(row, 5).saturating_sub(gone_rows);
        let bytes = unsigned(row, 6).saturating_sub(gone_bytes);
        (rows > 0).then_some(NamespaceStats { namespace, kind, rows, bytes })
    });
    Ok(held.collect())
}

/// Returns totals.
pub(super) async fn stats(db: &Object, now: Timestamp) -> Outcome<Stats> {
    let mut stats = Stats { driver: super::NAME, ..Stats::default() };
    let mut kinds: BTreeMap<i64, String> = BTreeMap::new();
    for row in &all(db, SPACES, &[]).await? {
        let kind: String = get(row, 4).unwrap_or_default();
        let rows = unsigned(row, 5);
        stats.rows += rows;
        stats.bytes += unsigned(row, 6);
        *stats.rows_by_kind.entry(kind.clone()).or_default() += rows;
        kinds.insert(get(row, 0).unwrap_or_default(), kind);
    }
    for row in &all(db, KEYS, &[]).await? {
        stats.rows_by_key_id.insert(get(row, 0).unwrap_or_default(), unsigned(row, 1));
    }
    for (space, key_id, rows, _) in ended(db, now).await? {
        stats.expired += rows;
        let less = |counts: &mut BTreeMap<String, u64>, name: &str| {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(rows);
            }
        };
        less(&mut stats.rows_by_kind, kinds.get(&space).map_or("", String::as_str));
        less(&mut stats.rows_by_key_id, &key_id);
    }
    stats.rows = stats.rows.saturating_sub(stats.expired);
    stats.rows_by_kind.retain(|_, rows| *rows > 0);
    stats.rows_by_key_id.retain(|_, rows| *rows > 0);
    stats.disk_bytes = all(db, DISK, &[]).await?.first().map_or(0, |row| unsigned(row, 0));
    Ok(stats)
}
