//! Queries of readers, except lists and scans.
//!
//! Every query leaves out expired rows; none decrypts, except by calling the seal it was given.

use std::collections::BTreeMap;
use std::sync::Arc;

use helmdeck_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use super::rows::{self, meta_columns};
use crate::entry::{Entry, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::ops::{NamespaceStats, Stats};
use crate::requests::NamespaceOwner;
use crate::sealed::{RawRow, Seal};

const GET: &str = concat!(
    "SELECT ",
    meta_columns!(),
    ", e.key_id, e.value_nonce, e.value_ciphertext FROM memory_spaces s CROSS JOIN memory_entries e
      WHERE s.tenant = ?1 AND s.subject = ?2 AND s.session IS ?3 AND s.kind = ?4 AND e.space_id = s.id
        AND (e.expires_at IS NULL OR e.expires_at > ?5) AND e.key = ?6"
);

/// Returns an entry, opened.
pub(super) fn get(
    db: &Connection,
    namespace: &Namespace,
    kind: Kind,
    key: &str,
    now: Timestamp,
    seal: &Arc<dyn Seal>,
) -> Result<Option<Entry>> {
    let raw: Option<RawRow> = db
        .prepare_cached(GET)?
        .query_row(
            (
                &*namespace.tenant,
                &*namespace.subject,
                namespace.session.as_deref(),
                kind.as_str(),
                now.micros(),
                key,
            ),
            // Use the requested namespace, kind and key, not those of the row: the seal must agree
            // with them.
            |row| Ok(rows::raw(row, namespace, kind, key.to_owned())),
        )
        .optional()?
        .transpose()?;
    raw.map(|raw| seal.open(raw)).transpose()
}

/// Expired rows that are not swept yet and still counted.
const ENDED: &str =
    "SELECT space_id, key_id, count(*), sum(min(max(cost, 0), 4294967296)) FROM memory_entries
                      WHERE expires_at IS NOT NULL AND expires_at <= ?1 GROUP BY space_id, key_id";

/// The same, of one caller: its spaces first, then their rows.
const ENDED_OF: &str = "
SELECT e.space_id, e.key_id, count(*), sum(min(max(e.cost, 0), 4294967296))
  FROM memory_spaces s CROSS JOIN memory_entries e ON e.space_id = s.id
 WHERE s.tenant = ?2 AND s.subject = ?3 AND +e.expires_at IS NOT NULL AND +e.expires_at <= ?1
 GROUP BY e.space_id, e.key_id";
const SPACES: &str = "SELECT id, tenant, subject, session, kind, rows, bytes FROM memory_spaces";
const SPACES_OF: &str = "SELECT id, tenant, subject, session, kind, rows, bytes FROM memory_spaces WHERE tenant = ?1 AND subject = ?2";

/// Returns what each namespace holds, of one caller or of all.
///
/// Cost: linear in the namespaces and the rows that have ended; of one caller, in its namespaces
/// and rows.
pub(super) fn namespaces(
    db: &Connection,
    of: Option<&NamespaceOwner>,
    now: Timestamp,
) -> Result<Vec<NamespaceStats>> {
    let mut ended: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    let end = |row: &Row<'_>| {
        let (rows, bytes) = ended.entry(row.get(0)?).or_default();
        *rows += rows::unsigned(row.get_ref(2)?);
        *bytes += rows::unsigned(row.get_ref(3)?);
        Ok(())
    };
    match of {
        None => each(db, ENDED, [now.micros()], end)?,
        Some(of) => each(db, ENDED_OF, (now.micros(), &of.tenant, &of.subject), end)?,
    }
    let mut all = Vec::new();
    let hold = |row: &Row<'_>| {
        let (ended_rows, ended_bytes) = ended.get(&row.get(0)?).copied().unwrap_or_default();
        let rows = rows::unsigned(row.get_ref(5)?).saturating_sub(ended_rows);
        let Some(kind) = Kind::parse(&rows::text(row.get_ref(4)?)) else {
            return Ok(());
        };
        let session = row.get_ref(3)?;
        let session = (session != rusqlite::types::ValueRef::Null).then(|| rows::text(session));
        if rows > 0 {
            all.push(NamespaceStats {
                namespace: Namespace::new(
                    &rows::text(row.get_ref(1)?),
                    &rows::text(row.get_ref(2)?),
                    session.as_deref(),
                ),
                kind,
                rows,
                bytes: rows::unsigned(row.get_ref(6)?).saturating_sub(ended_bytes),
            });
        }
        Ok(())
    };
    match of {
        None => each(db, SPACES, [], hold)?,
        Some(of) => each(db, SPACES_OF, (&of.tenant, &of.subject), hold)?,
    }
    Ok(all)
}

/// Returns totals. Cost: as [`namespaces`].
pub(super) fn stats(db: &Connection, now: Timestamp) -> Result<Stats> {
    let mut stats = Stats {
        driver: "sqlite",
        ..Stats::default()
    };
    each(
        db,
        "SELECT kind, sum(rows), sum(bytes) FROM memory_spaces GROUP BY kind",
        [],
        |row| {
            let rows = rows::unsigned(row.get_ref(1)?);
            stats.rows += rows;
            let bytes = rows::unsigned(row.get_ref(2)?);
            stats.bytes += bytes;
            stats.rows_by_kind.insert(rows::text(row.get_ref(0)?), rows);
            stats
                .bytes_by_kind
                .insert(rows::text(row.get_ref(0)?), bytes);
            Ok(())
        },
    )?;
    each(db, "SELECT key_id, rows FROM memory_keys", [], |row| {
        stats
            .rows_by_key_id
            .insert(rows::text(row.get_ref(0)?), rows::unsigned(row.get_ref(1)?));
        Ok(())
    })?;
    let ended =
        "SELECT s.kind, e.key_id, count(*), sum(e.cost) FROM memory_entries e JOIN memory_spaces s ON s.id = e.space_id
                  WHERE e.expires_at IS NOT NULL AND e.expires_at <= ?1 GROUP BY s.kind, e.key_id";
    each(db, ended, [now.micros()], |row| {
        let rows = rows::unsigned(row.get_ref(2)?);
        stats.expired += rows;
        let bytes = rows::unsigned(row.get_ref(3)?);
        let of_kind = [
            (&mut stats.rows_by_kind, 0, rows),
            (&mut stats.bytes_by_kind, 0, bytes),
        ];
        for (counts, name, less) in
            of_kind
                .into_iter()
                .chain([(&mut stats.rows_by_key_id, 1, rows)])
        {
            if let Some(count) = counts.get_mut(&rows::text(row.get_ref(name)?)) {
                *count = count.saturating_sub(less);
            }
        }
        Ok(())
    })?;
    stats.rows = stats.rows.saturating_sub(stats.expired);
    let rows_by_kind = &stats.rows_by_kind;
    stats
        .bytes_by_kind
        .retain(|kind, _| rows_by_kind.get(kind).is_some_and(|rows| *rows > 0));
    stats.rows_by_kind.retain(|_, rows| *rows > 0);
    stats.rows_by_key_id.retain(|_, rows| *rows > 0);
    Ok(stats)
}

fn each(
    db: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    mut take: impl FnMut(&Row<'_>) -> Result<(), rusqlite::Error>,
) -> Result<()> {
    let mut statement = db.prepare_cached(sql)?;
    let mut found = statement.query(params)?;
    while let Some(row) = found.next()? {
        take(row).map_err(StoreError::from)?;
    }
    Ok(())
}
