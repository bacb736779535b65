//! Read queries. All but the walk leave out expired rows; only the given seal decrypts.

use std::sync::Arc;

use helmdeck_core::Timestamp;
use tokio_postgres::Row;

use super::db::{Db, Param};
use super::error::Outcome;
use super::rows::{self, get, meta_columns, raw_columns};
use crate::entry::{Entry, Kind, Namespace};
use crate::error::StoreError;
use crate::key::hex;
use crate::ops::{ListPage, Mark, Order, Scan, Walk, Walked};
use crate::requests::{Position, Range, WALK_BYTES, page_of};
use crate::sealed::{RawRow, Seal};

/// The space of a query, as a value: so an index can return its rows in order, and one partition is
/// enough.
macro_rules! space_id {
    () => {
        "(SELECT s.id FROM memory_spaces s WHERE s.tenant = $1 AND s.subject = $2 AND s.kind = $3
                                             AND coalesce('\\x01'::bytea || s.session, '\\x'::bytea) = $4)"
    };
}
/// Live rows of a space.
macro_rules! of_space {
    ($columns:expr) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM memory_entries e WHERE e.space_id = ",
            space_id!(),
            " AND (e.expires_at IS NULL OR e.expires_at > $5) AND "
        )
    };
}
/// Live rows of a space, over the index by time, which knows the space as an expression.
macro_rules! by_time {
    ($columns:expr) => {
        concat!(
            of_space!($columns),
            "e.space_id + 0 = ",
            space_id!(),
            " AND "
        )
    };
}
macro_rules! of_prefix {
    ($columns:expr) => {
        concat!(of_space!($columns), "e.key >= $6 AND e.key < $7")
    };
}

const GET: &str = concat!(of_space!(raw_columns!()), "e.key = $6");

/// Newest first, over the index by time: for all keys of a space.
const LIST_ALL: &str = concat!(
    by_time!(meta_columns!()),
    "e.updated_at <= $6 AND (e.updated_at < $6 OR e.key > $7) ORDER BY e.updated_at DESC, e.key LIMIT $8"
);
/// Newest first, over the index by key: for a prefix.
///
/// `OFFSET 0` prevents PostgreSQL from walking over all keys by time.
const LIST_PREFIX: &str = concat!(
    "SELECT * FROM (",
    of_prefix!(meta_columns!()),
    " OFFSET 0) e WHERE e.updated_at <= $8 AND (e.updated_at < $8 OR e.key > $9) ORDER BY e.updated_at DESC, e.key LIMIT $10"
);

const SCAN_ASCENDING: &str = concat!(of_prefix!(raw_columns!()), " ORDER BY e.key LIMIT $8");
const SCAN_DESCENDING: &str = concat!(of_prefix!(raw_columns!()), " ORDER BY e.key DESC LIMIT $8");
const SCAN_ALL_NEWEST: &str = concat!(
    by_time!(raw_columns!()),
    "true ORDER BY e.updated_at DESC, e.key LIMIT $6"
);
const SCAN_NEWEST: &str = concat!(
    "SELECT * FROM (",
    of_prefix!(raw_columns!()),
    " OFFSET 0) e ORDER BY e.updated_at DESC, e.key LIMIT $8"
);

/// Which rows come next in a walk, and how large they are.
const WALK_AHEAD: &str =
    "SELECT space_id, key, octet_length(value_ciphertext)::bigint, key_id FROM memory_entries
                           WHERE (space_id, key) > ($1, $2) ORDER BY space_id, key LIMIT $3";
const WALK: &str = concat!(
    "SELECT ",
    raw_columns!(),
    ", s.tenant, s.subject, s.session, s.kind, e.space_id
       FROM unnest($1::bigint[], $2::bytea[]) AS n(space_id, key)
      CROSS JOIN LATERAL (SELECT * FROM memory_entries e WHERE e.space_id = n.space_id AND e.key = n.key OFFSET 0) e
       JOIN memory_spaces s ON s.id = e.space_id"
);

/// Returns an entry, opened.
pub(super) async fn by_key(
    db: &Db,
    namespace: &Namespace,
    kind: Kind,
    key: &str,
    now: Timestamp,
    seal: &Arc<dyn Seal>,
) -> Outcome<Option<Entry>> {
    let session = rows::session_name(namespace);
    let params: [&dyn Param; 6] = [
        &namespace.tenant.as_bytes(),
        &namespace.subject.as_bytes(),
        &kind.as_str(),
        &session,
        &now.micros(),
        &key.as_bytes(),
    ];
    let Some(row) = db.query_opt(GET, &params).await? else {
        return Ok(None);
    };
    // Use the requested namespace, kind and key, not those of the row: the seal must agree with
    // them.
    let mut raw = rows::raw(&row, namespace, kind);
    key.clone_into(&mut raw.meta.key);
    let seal = Arc::clone(seal);
    Ok(Some(
        rows::open(raw.sealed.value.len(), move || seal.open(raw)).await??,
    ))
}

/// Returns a page of entries, newest first.
pub(super) async fn list(
    db: &Db,
    range: &Range,
    after: Option<&Position>,
    limit: usize,
) -> Outcome<ListPage> {
    let space = SpaceParams::new(range);
    let (time, key) = after.map_or((i64::MAX, ""), |position| {
        (position.updated_at.micros(), position.key.as_str())
    });
    let (key, count) = (key.as_bytes(), rows::limit(limit.saturating_add(1)));
    let upper = rows::upper(&range.prefix);
    let prefix = range.prefix.as_bytes();
    let mut params = space.params();
    let sql = if range.prefix.is_empty() {
        LIST_ALL
    } else {
        params.extend([&prefix as &dyn Param, &upper]);
        LIST_PREFIX
    };
    params.extend([&time as &dyn Param, &key, &count]);
    let found = db.query(sql, &params).await?;
    let entries = found
        .iter()
        .map(|row| rows::meta(row, &range.namespace, range.kind))
        .collect();
    Ok(page_of(entries, limit))
}

/// Returns entries in an order, opened, all of one moment.
pub(super) async fn scan(
    db: &Db,
    range: &Range,
    order: Order,
    limit: usize,
    seal: &Arc<dyn Seal>,
) -> Outcome<Scan> {
    let space = SpaceParams::new(range);
    let upper = rows::upper(&range.prefix);
    let prefix = range.prefix.as_bytes();
    let mut params = space.params();
    let sql = match order {
        Order::NewestFirst if range.prefix.is_empty() => SCAN_ALL_NEWEST,
        order => {
            params.extend([&prefix as &dyn Param, &upper]);
            match order {
                Order::KeyAscending => SCAN_ASCENDING,
                Order::KeyDescending => SCAN_DESCENDING,
                Order::NewestFirst => SCAN_NEWEST,
            }
        }
    };
    let mut wanted = limit;
    loop {
        // One statement sees one moment, so rows that do not open are made up for by a larger one.
        let most = rows::limit(wanted);
        let mut params = params.clone();
        params.push(&most);
        let found = db.query(sql, &params).await?;
        let is_last = found.len() < wanted;
        let raw: Vec<RawRow> = found
            .iter()
            .map(|row| rows::raw(row, &range.namespace, range.kind))
            .collect();
        drop(found);
        let mut scan = Scan::default();
        for opened in open_all(raw, seal).await? {
            match opened {
                _ if scan.entries.len() == limit => break,
                Ok(entry) => scan.entries.push(entry),
                Err(_) => scan.unreadable += 1,
            }
        }
        if is_last || scan.entries.len() >= limit {
            return Ok(scan);
        }
        wanted = wanted.saturating_mul(2);
    }
}

/// Returns the next rows of all namespaces, opened.
pub(super) async fn walk(
    db: &Db,
    after: Option<&Mark>,
    limit: usize,
    seal: &Arc<dyn Seal>,
) -> Outcome<Walk> {
    let ahead = Ahead::look(db, after, limit).await?;
    let found = named(db, &ahead.places).await?;
    // A row without a space, or of an unknown kind, was planted, and cannot be named.
    let raw: Vec<RawRow> = found
        .iter()
        .filter_map(|row| {
            rows::space(row, rows::RAW).map(|(namespace, kind)| rows::raw(row, &namespace, kind))
        })
        .collect();
    let known: Vec<_> = raw
        .iter()
        .map(|row| (row.meta.clone(), row.sealed.key_id.clone()))
        .collect();
    let opened = open_all(raw, seal).await?;
    let rows = known
        .into_iter()
        .zip(opened)
        .map(|((meta, key_id), opened)| {
            let value = opened
                .map(|entry| entry.value)
                .map_err(|error| match error {
                    StoreError::Unreadable { reason } => reason,
                    _ => "it could not be opened",
                });
            Walked {
                meta,
                key_id,
                value,
            }
        });
    Ok(Walk {
        rows: rows.collect(),
        next: ahead.next,
    })
}

/// A row as the walk knows it: its space, and its key as bytes.
pub(super) type Place = (i64, Vec<u8>);

/// Returns rows with their spaces (tenant, subject, session, kind, id).
pub(super) async fn named(db: &Db, places: &[Place]) -> Outcome<Vec<Row>> {
    let (spaces, keys): (Vec<i64>, Vec<&[u8]>) = places
        .iter()
        .map(|(space, key)| (*space, key.as_slice()))
        .unzip();
    db.query(WALK, &[&spaces, &keys]).await
}

/// The rows of the next step of a walk.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Their spaces and keys.
    pub(super) places: Vec<Place>,
    /// The ids of the keys that sealed them.
    pub(super) key_ids: Vec<String>,
    /// Where the step after this one starts.
    pub(super) next: Option<Mark>,
}

impl Ahead {
    /// Looks which rows come after a mark: at most `limit`, and at most about [`WALK_BYTES`] of
    /// values.
    pub(super) async fn look(db: &Db, after: Option<&Mark>, limit: usize) -> Outcome<Self> {
        let (space, key) = after.map_or(Ok((i64::MIN, Vec::new())), place_of)?;
        let found = db
            .query(WALK_AHEAD, &[&space, &key, &rows::limit(limit)])
            .await?;
        let mut bytes = 0;
        let fitting = found.iter().take_while(|row| {
            let fits = bytes < WALK_BYTES as u64;
            bytes += rows::unsigned(row, 2);
            fits
        });
        let place = |row: &Row| {
            (
                get(row, 0).unwrap_or_default(),
                get::<Vec<u8>>(row, 1).unwrap_or_default(),
            )
        };
        let (places, key_ids): (Vec<Place>, Vec<String>) = fitting
            .map(|row| (place(row), get(row, 3).unwrap_or_default()))
            .unzip();
        let is_last = found.len() < limit && places.len() == found.len();
        let next = places
            .last()
            .filter(|_| !is_last)
            .map(|(space, key)| Mark(format!("{space}/{}", hex(key))));
        Ok(Self {
            places,
            key_ids,
            next,
        })
    }
}

/// Reads a mark.
fn place_of(Mark(text): &Mark) -> Result<Place, StoreError> {
    let place = || {
        let (space, key) = text.split_once('/')?;
        Some((space.parse().ok()?, unhex(key)?))
    };
    place().ok_or(StoreError::Invalid("the mark was not made by a store"))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

async fn open_all(raw: Vec<RawRow>, seal: &Arc<dyn Seal>) -> Outcome<Vec<crate::Result<Entry>>> {
    let seal = Arc::clone(seal);
    let bytes = raw.iter().map(|row| row.sealed.value.len()).sum();
    rows::open(bytes, move || {
        raw.into_iter().map(|row| seal.open(row)).collect()
    })
    .await
}

/// The first five parameters of queries over a space.
struct SpaceParams<'r> {
    tenant: &'r [u8],
    subject: &'r [u8],
    kind: &'static str,
    session: Vec<u8>,
    now: i64,
}

impl<'r> SpaceParams<'r> {
    fn new(range: &'r Range) -> Self {
        Self {
            tenant: range.namespace.tenant.as_bytes(),
            subject: range.namespace.subject.as_bytes(),
            kind: range.kind.as_str(),
            session: rows::session_name(&range.namespace),
            now: range.now.micros(),
        }
    }

    fn params(&self) -> Vec<&dyn Param> {
        vec![
            &self.tenant,
            &self.subject,
            &self.kind,
            &self.session,
            &self.now,
        ]
    }
}
