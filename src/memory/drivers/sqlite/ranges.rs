//! Lists and scans: the live rows of a key space whose keys have a prefix, in one of three orders.
//!
//! Newest first there are two ways: by key, then sorted, or from the newest on, leaving out other
//! keys. Both give the same; how many keys there are says which is faster.

use std::sync::Arc;

use helmdeck_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Statement};

use super::rows::{self, meta_columns};
use crate::error::Result;
use crate::ops::{ListPage, Order, Scan};
use crate::requests::{Position, Range, page_of};
use crate::sealed::Seal;

/// A prefix with at most this many keys is always narrow.
const NARROW: i64 = 1000;

/// Query over one key space by one index.
///
/// The id of the space is looked up as a single value, so that rows come in the order of the index.
macro_rules! range {
    ($columns:expr, $index:expr) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM memory_entries e INDEXED BY ",
            $index,
            " WHERE e.space_id = (SELECT s.id FROM memory_spaces s
                                   WHERE s.tenant = ?1 AND s.subject = ?2 AND s.session IS ?3 AND s.kind = ?4 LIMIT 1)
                AND (e.expires_at IS NULL OR e.expires_at > ?5) AND e.key >= ?6 AND e.key < ?7 "
        )
    };
}

/// The rows after a position, newest first, ties by key.
macro_rules! newest_first {
    ($columns:expr, $index:expr) => {
        concat!(
            range!($columns, $index),
            "AND e.updated_at <= ?8 AND (e.updated_at < ?8 OR e.key > ?9) ORDER BY e.updated_at DESC, e.key LIMIT ?10"
        )
    };
}

macro_rules! whole {
    () => {
        concat!(
            meta_columns!(),
            ", e.key_id, e.value_nonce, e.value_ciphertext, e.key"
        )
    };
}

const ASCENDING: &str = concat!(range!(whole!(), "memory_entries_by_key"), "ORDER BY e.key");
const DESCENDING: &str = concat!(
    range!(whole!(), "memory_entries_by_key"),
    "ORDER BY e.key DESC"
);
const ONE: &str = concat!(
    "SELECT ",
    whole!(),
    " FROM memory_entries e WHERE e.id = ?1"
);
/// Narrow and broad, in this order.
const LIST: [&str; 2] = [
    newest_first!(concat!(meta_columns!(), ", e.key"), "memory_entries_by_key"),
    newest_first!(concat!(meta_columns!(), ", e.key"), "memory_entries_by_age"),
];
const IDS: [&str; 2] = [
    newest_first!("e.id", "memory_entries_by_key"),
    newest_first!("e.id", "memory_entries_by_age"),
];

/// Returns a page of entries, newest first.
pub(super) fn list(
    db: &Connection,
    range: &Range,
    after: Option<Position>,
    limit: usize,
) -> Result<ListPage> {
    let limit_sql = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(LIST[usize::from(is_broad(db, range, limit_sql)?)])?;
    let mut found = newest(&mut statement, range, after, limit_sql)?;
    let mut entries = Vec::new();
    while let Some(row) = found.next()? {
        entries.push(rows::meta(
            row,
            &range.namespace,
            range.kind,
            rows::text(row.get_ref(rows::META)?),
        )?);
    }
    Ok(page_of(entries, limit))
}

/// Returns entries in an order, opened.
pub(super) fn scan(
    db: &Connection,
    range: &Range,
    order: Order,
    limit: usize,
    seal: &Arc<dyn Seal>,
) -> Result<Scan> {
    let mut scan = Scan::default();
    scan.entries.reserve(limit.min(128));
    let take = |row: &Row<'_>, scan: &mut Scan| -> Result<()> {
        let raw = rows::raw(
            row,
            &range.namespace,
            range.kind,
            rows::text(row.get_ref(rows::WHOLE)?),
        )?;
        match seal.open(raw) {
            Ok(entry) => scan.entries.push(entry),
            Err(_) => scan.unreadable += 1,
        }
        Ok(())
    };
    if order == Order::NewestFirst {
        // Only ids are sorted, not values. The open query keeps both statements at one state of the
        // database.
        let limit_sql = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = db.prepare_cached(IDS[usize::from(is_broad(db, range, limit_sql)?)])?;
        let mut ids = newest(&mut statement, range, None, i64::MAX)?;
        let mut one = db.prepare_cached(ONE)?;
        while scan.entries.len() < limit
            && let Some(id) = ids.next()?
        {
            let mut found = one.query([id.get::<_, i64>(0)?])?;
            if let Some(row) = found.next()? {
                take(row, &mut scan)?;
            }
        }
    } else {
        let sql = if order == Order::KeyAscending {
            ASCENDING
        } else {
            DESCENDING
        };
        let mut statement = db.prepare_cached(sql)?;
        let mut found = statement.query((
            &*range.namespace.tenant,
            &*range.namespace.subject,
            range.namespace.session.as_deref(),
            range.kind.as_str(),
            range.now.micros(),
            &range.prefix,
            rows::upper(&range.prefix),
        ))?;
        while scan.entries.len() < limit
            && let Some(row) = found.next()?
        {
            take(row, &mut scan)?;
        }
    }
    Ok(scan)
}

fn newest<'s>(
    statement: &'s mut Statement<'_>,
    range: &Range,
    after: Option<Position>,
    limit: i64,
) -> Result<rusqlite::Rows<'s>> {
    let after = after.unwrap_or(Position {
        updated_at: Timestamp::MAX,
        key: String::new(),
    });
    Ok(statement.query((
        &*range.namespace.tenant,
        &*range.namespace.subject,
        range.namespace.session.as_deref(),
        range.kind.as_str(),
        range.now.micros(),
        &range.prefix,
        rows::upper(&range.prefix),
        after.updated_at.micros(),
        &after.key,
        limit,
    ))?)
}

/// Returns whether the prefix matches enough keys that a scan by age finds the newest sooner.
///
/// Of a space of N rows, n of them with the prefix, going by key looks at n rows, and going by age
/// at about N * limit / n: they are equal at n = sqrt(N * limit).
fn is_broad(db: &Connection, range: &Range, limit: i64) -> Result<bool> {
    if range.prefix.is_empty() {
        return Ok(true);
    }
    let space: Option<(i64, i64)> = db
        .prepare_cached(
            "SELECT id, rows FROM memory_spaces WHERE tenant = ?1 AND subject = ?2 AND session IS ?3 AND kind = ?4",
        )?
        .query_row(
            (
                &*range.namespace.tenant,
                &*range.namespace.subject,
                range.namespace.session.as_deref(),
                range.kind.as_str(),
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let Some((space, rows)) = space else {
        return Ok(false);
    };
    let narrow = rows.max(0).saturating_mul(limit.max(1)).isqrt().max(NARROW);
    let counted: i64 = db
        .prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM memory_entries INDEXED BY memory_entries_by_key
                                    WHERE space_id = ?1 AND key >= ?2 AND key < ?3 LIMIT ?4)",
        )?
        .query_row(
            (
                space,
                &range.prefix,
                rows::upper(&range.prefix),
                narrow.saturating_add(1),
            ),
            |row| row.get(0),
        )?;
    Ok(counted > narrow)
}
