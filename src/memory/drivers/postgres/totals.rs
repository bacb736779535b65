//! Totals from counters: their cost depends on namespaces and expired rows, not on all rows.

use std::collections::BTreeMap;

use helmdeck_core::Timestamp;

use super::db::Db;
use super::error::Outcome;
use super::rows::{self, get, unsigned};
use crate::ops::{NamespaceStats, Stats};
use crate::requests::NamespaceOwner;

/// Expired rows that are not swept yet and still counted.
const ENDED: &str =
    "SELECT space_id, key_id, count(*), sum(least(greatest(cost, 0), 4294967296))::bigint FROM memory_entries
                      WHERE expires_at <= $1 GROUP BY space_id, key_id";
/// The same, of one caller.
const ENDED_OF: &str = "
SELECT e.space_id, e.key_id, count(*), sum(least(greatest(e.cost, 0), 4294967296))::bigint
  FROM memory_spaces s JOIN memory_entries e ON e.space_id = s.id
 WHERE s.tenant = $2 AND s.subject = $3 AND e.expires_at <= $1 GROUP BY e.space_id, e.key_id";
const SPACES: &str = "SELECT id, tenant, subject, session, kind, rows, bytes FROM memory_spaces";
const SPACES_OF: &str = "
SELECT s.id, s.tenant, s.subject, s.session, s.kind, s.rows, s.bytes FROM memory_spaces s
 WHERE s.tenant = $1 AND s.subject = $2";
const KINDS: &str =
    "SELECT kind, sum(rows)::bigint, sum(bytes)::bigint FROM memory_spaces GROUP BY kind";
const ENDED_BY_KIND: &str = "
SELECT s.kind, e.key_id, count(*), sum(least(greatest(e.cost, 0), 4294967296))::bigint
  FROM memory_entries e LEFT JOIN memory_spaces s ON s.id = e.space_id
 WHERE e.expires_at <= $1 GROUP BY s.kind, e.key_id";
const KEYS: &str = "SELECT key_id, sum(rows)::bigint FROM memory_keys GROUP BY key_id";
/// The tables and their partitions, with their indexes and what is kept beside them.
const DISK: &str = "
SELECT sum(pg_total_relation_size(coalesce(part.relid, name::regclass)))::bigint
  FROM unnest(ARRAY['memory_spaces', 'memory_entries', 'memory_tags', 'memory_keys', 'memory_hands', 'memory_changes']) AS name
  LEFT JOIN LATERAL pg_partition_tree(name::regclass) AS part ON true";

/// Returns the totals of each namespace, of one caller or of all.
pub(super) async fn namespaces(
    db: &Db,
    of: Option<&NamespaceOwner>,
    now: Timestamp,
) -> Outcome<Vec<NamespaceStats>> {
    let now = now.micros();
    let (ended, found) = match of {
        None => (
            db.query(ENDED, &[&now]).await?,
            db.query(SPACES, &[]).await?,
        ),
        Some(of) => {
            let (tenant, subject) = (of.tenant.as_bytes(), of.subject.as_bytes());
            (
                db.query(ENDED_OF, &[&now, &tenant, &subject]).await?,
                db.query(SPACES_OF, &[&tenant, &subject]).await?,
            )
        }
    };
    let mut gone: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    for row in &ended {
        let (all_rows, all_bytes) = gone.entry(get(row, 0).unwrap_or_default()).or_default();
        *all_rows += unsigned(row, 2);
        *all_bytes += unsigned(row, 3);
    }
    let held = found.iter().filter_map(|row| {
        let (namespace, kind) = rows::space(row, 1)?;
        let (gone_rows, gone_bytes) = gone.get(&get(row, 0)?).copied().unwrap_or_default();
        let rows = unsigned(row, 5).saturating_sub(gone_rows);
        let bytes = unsigned(row, 6).saturating_sub(gone_bytes);
        (rows > 0).then_some(NamespaceStats {
            namespace,
            kind,
            rows,
            bytes,
        })
    });
    Ok(held.collect())
}

/// Returns totals.
pub(super) async fn stats(db: &Db, now: Timestamp) -> Outcome<Stats> {
    let mut stats = Stats {
        driver: super::NAME,
        ..Stats::default()
    };
    for row in &db.query(KINDS, &[]).await? {
        let kind: String = get(row, 0).unwrap_or_default();
        let (rows, bytes) = (unsigned(row, 1), unsigned(row, 2));
        stats.rows += rows;
        stats.bytes += bytes;
        stats.rows_by_kind.insert(kind.clone(), rows);
        stats.bytes_by_kind.insert(kind, bytes);
    }
    for row in &db.query(KEYS, &[]).await? {
        stats
            .rows_by_key_id
            .insert(get(row, 0).unwrap_or_default(), unsigned(row, 1));
    }
    for row in &db.query(ENDED_BY_KIND, &[&now.micros()]).await? {
        let (kind, key_id): (&str, &str) = (
            get(row, 0).unwrap_or_default(),
            get(row, 1).unwrap_or_default(),
        );
        let (rows, bytes) = (unsigned(row, 2), unsigned(row, 3));
        stats.expired += rows;
        let less = |counts: &mut BTreeMap<String, u64>, name: &str, by: u64| {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(by);
            }
        };
        less(&mut stats.rows_by_kind, kind, rows);
        less(&mut stats.bytes_by_kind, kind, bytes);
        less(&mut stats.rows_by_key_id, key_id, rows);
    }
    stats.rows = stats.rows.saturating_sub(stats.expired);
    let rows_by_kind = &stats.rows_by_kind;
    stats
        .bytes_by_kind
        .retain(|kind, _| rows_by_kind.get(kind).is_some_and(|rows| *rows > 0));
    stats.rows_by_kind.retain(|_, rows| *rows > 0);
    stats.rows_by_key_id.retain(|_, rows| *rows > 0);
    stats.disk_bytes = db
        .query(DISK, &[])
        .await?
        .first()
        .map_or(0, |row| unsigned(row, 0));
    Ok(stats)
}
