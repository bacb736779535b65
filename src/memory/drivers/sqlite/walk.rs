//! Walks over all rows of all namespaces by row id: to show them, and to reseal them.
//!
//! The mark is the id of the last row visited.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::rows::{self, meta_columns};
use super::usage::Usage;
use crate::entry::{Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::ops::{Mark, Resealed, Walk, Walked};
use crate::requests::WALK_BYTES;
use crate::sealed::{RawRow, Seal};

/// Bytes of values after which a step of a rotation ends: other writers wait a few milliseconds.
const STEP_BYTES: usize = 1 << 20;

/// Includes rows whose space is missing, so that the doctor reports them.
const ALL: &str = concat!(
    "SELECT ",
    meta_columns!(),
    ", e.key_id, e.value_nonce, e.value_ciphertext, e.key, e.id, s.tenant, s.subject, s.session, s.kind
       FROM memory_entries e LEFT JOIN memory_spaces s ON s.id = e.space_id WHERE e.id > ?1 ORDER BY e.id LIMIT ?2"
);

/// A row, and whether it belongs to no namespace.
struct WalkedRow {
    id: i64,
    raw: RawRow,
    is_lost: bool,
}

/// A part of the rows.
struct WalkPage {
    rows: Vec<WalkedRow>,
    next: Option<Mark>,
}

/// Returns rows after a mark, opened.
pub(super) fn walk(
    db: &Connection,
    after: Option<&Mark>,
    limit: usize,
    seal: &Arc<dyn Seal>,
) -> Result<Walk> {
    let WalkPage { rows, next } = part(db, after, limit, WALK_BYTES, None)?;
    let open = |found: WalkedRow| {
        let walked = found.raw.walk(&**seal);
        if found.is_lost {
            Walked {
                value: Err("it is in no namespace"),
                ..walked
            }
        } else {
            walked
        }
    };
    Ok(Walk {
        rows: rows.into_iter().map(open).collect(),
        next,
    })
}

/// Seals rows after a mark anew, inside an open transaction.
pub(super) fn reseal(
    db: &Connection,
    after: Option<&Mark>,
    limit: usize,
    current: &str,
    seal: &Arc<dyn Seal>,
) -> Result<Resealed> {
    let WalkPage { rows, next } = part(db, after, limit, STEP_BYTES, Some(current))?;
    let mut done = Resealed {
        next,
        ..Resealed::default()
    };
    let mut usage = Usage::default();
    for found in rows {
        let old = found.raw.sealed.key_id.clone();
        let Ok(entry) = seal.open(found.raw) else {
            done.unreadable += 1;
            continue;
        };
        let sealed = seal.seal(&entry.meta, &entry.value)?;
        db.prepare_cached(
            "UPDATE memory_entries SET key_id = ?2, value_nonce = ?3, value_ciphertext = ?4 WHERE id = ?1",
        )?
        .execute((found.id, &sealed.key_id, &sealed.nonce, &sealed.value))?;
        usage.count_key(&old, -1);
        usage.count_key(&sealed.key_id, 1);
        done.rows += 1;
    }
    usage.write(db)?;
    Ok(done)
}

/// Reads rows after a mark until it has read `limit` rows, or `bytes` of values.
///
/// Values of rows with the key `skip` are not read.
fn part(
    db: &Connection,
    after: Option<&Mark>,
    limit: usize,
    bytes: usize,
    skip: Option<&str>,
) -> Result<WalkPage> {
    let after = match after {
        None => i64::MIN,
        Some(mark) => mark
            .0
            .parse()
            .map_err(|_| StoreError::Invalid("the mark was not made by this store"))?,
    };
    let mut statement = db.prepare_cached(ALL)?;
    let mut found = statement.query((after, i64::try_from(limit).unwrap_or(i64::MAX)))?;
    let (mut rows, mut looked, mut read, mut last) = (Vec::new(), 0, 0, None);
    while read < bytes
        && let Some(row) = found.next()?
    {
        looked += 1;
        let id = row.get("id")?;
        last = Some(Mark(i64::to_string(&id)));
        if skip.is_some_and(
            |skip| matches!(row.get_ref("key_id"), Ok(ValueRef::Text(id)) if id == skip.as_bytes()),
        ) {
            continue;
        }
        let (namespace, kind, is_lost) = place(row)?;
        let raw = rows::raw(row, &namespace, kind, rows::text(row.get_ref("key")?))?;
        read += raw.sealed.value.len();
        rows.push(WalkedRow { id, raw, is_lost });
    }
    // Fewer rows than requested, and not because they were large: this is the end.
    let next = if looked < limit && read < bytes {
        None
    } else {
        last
    };
    Ok(WalkPage { rows, next })
}

/// Returns the namespace of a row. A row without a namespace, or of an unknown kind, is lost.
fn place(row: &Row<'_>) -> Result<(Namespace, Kind, bool)> {
    let session = row.get_ref("session")?;
    let session = (session != ValueRef::Null).then(|| rows::text(session));
    let namespace = Namespace::new(
        &rows::text(row.get_ref("tenant")?),
        &rows::text(row.get_ref("subject")?),
        session.as_deref(),
    );
    let kind = Kind::parse(&rows::text(row.get_ref("kind")?));
    Ok((namespace, kind.unwrap_or(Kind::Cache), kind.is_none()))
}
