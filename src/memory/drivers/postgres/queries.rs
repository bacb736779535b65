//! Read queries. All but the walk leave out expired rows; only the given seal decrypts.

use std::sync::Arc;

use deadpool_postgres::Object;
use helmdeck_core::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::Outcome;
use super::rows::{self, get, meta_columns, raw_columns};
use crate::entry::{Entry, Kind, Namespace};
use crate::error::StoreError;
use crate::ops::{ListPage, Mark, Order, Scan, Walk, Walked};
use crate::requests::{Position, Range, WALK_BYTES, page_of};
use crate::sealed::{RawRow, Seal};

/// Live rows of a space.
///
/// The space is a value here and not a joined table, so that an index can return the rows in order.
///
/// `space` is what an index knows the space by: `e.space_id`, or `e.space_id + 0` for the one by time.
macro_rules! of_space {
    ($columns:expr, $space:expr) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM memory_entries e
               WHERE ",
            $space,
            " = (SELECT s.id FROM memory_spaces s
                                    WHERE s.tenant = $1 AND s.subject = $2 AND s.kind = $3
                                      AND coalesce('\\x01'::bytea || s.session, '\\x'::bytea) = $4)
                 AND (e.expires_at IS NULL OR e.expires_at > $5) AND "
        )
    };
}
macro_rules! of_prefix {
    ($columns:expr) => {
        concat!(of_space!($columns, "e.space_id"), "e.key >= $6 AND ($7::bytea IS NULL OR e.key < $7)")
    };
}

const GET: &str = concat!(of_space!(raw_columns!(), "e.space_id"), "e.key = $6");

/// Newest first, over the index by time: for all keys of a space.
const LIST_ALL: &str = concat!(
    of_space!(meta_columns!(), "e.space_id + 0"),
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

const SCAN_ASCENDING: &str = concat!(of_prefix!(raw_columns!()), " ORDER BY e.key");
const SCAN_DESCENDING: &str = concat!(of_prefix!(raw_columns!()), " ORDER BY e.key DESC");
const SCAN_ALL_NEWEST: &str =
    concat!(of_space!(raw_columns!(), "e.space_id + 0"), "true ORDER BY e.updated_at DESC, e.key");
const SCAN_NEWEST: &str =
    concat!("SELECT * FROM (", of_prefix!(raw_columns!()), " OFFSET 0) e ORDER BY e.updated_at DESC, e.key");

/// Which rows come next in a walk, and how large they are.
const WALK_AHEAD: &str = "SELECT id, octet_length(value_ciphertext)::bigint, key_id FROM memory_entries WHERE id > $1
                           ORDER BY id LIMIT $2";
const WALK: &str = concat!(
    "SELECT ",
    raw_columns!(),
    ", s.tenant, s.subject, s.session, s.kind, e.id, e.space_id
       FROM memory_entries e JOIN memory_spaces s ON s.id = e.space_id WHERE e.id = ANY($1) ORDER BY e.id"
);

/// Rows that a scan asks for at a time.
const CHUNK: usize = 100;

/// Returns an entry, opened.
pub(super) async fn by_key(
    db: &Object,
    namespace: &Namespace,
    kind: Kind,
    key: &str,
    now: Timestamp,
    seal: &Arc<dyn Seal>,
) -> Outcome<Option<Entry>> {
    let statement = db.prepare_cached(GET).await?;
    let session = rows::session_name(namespace);
    let params: [&(dyn ToSql + Sync); 6] = [
        &namespace.tenant.as_bytes(),
        &namespace.subject.as_bytes(),
        &kind.as_str(),
        &session,
        &now.micros(),
        &key.as_bytes(),
    ];
    let Some(row) = db.query_opt(&statement, &params).await? else { return Ok(None) };
    // Use the requested namespace, kind and key, not those of the row: the seal must agree with them.
    let mut raw = rows::raw(&row, namespace, kind);
    key.clone_into(&mut raw.meta.key);
    let seal = Arc::clone(seal);
    Ok(Some(rows::open(raw.sealed.value.len(), move || seal.open(raw)).await??))
}

/// Returns a page of entries, newest first.
pub(super) async fn list(db: &Object, range: &Range, after: Option<&Position>, limit: usize) -> Outcome<ListPage> {
    let space = SpaceParams::new(range);
    let (time, key) = after.map_or((i64::MAX, ""), |position| (position.updated_at.micros(), position.key.as_str()));
    let (key, count) = (key.as_bytes(), rows::limit(limit.saturating_add(1)));
    let upper = rows::upper(&range.prefix);
    let prefix = range.prefix.as_bytes();
    let mut params = space.params();
    let sql = if range.prefix.is_empty() {
        LIST_ALL
    } else {
        params.extend([&prefix as &(dyn ToSql + Sync), &upper]);
        LIST_PREFIX
    };
    params.extend([&time as &(dyn ToSql + Sync), &key, &count]);
    let statement = db.prepare_cached(sql).await?;
    let found = db.query(&statement, &params).await?;
    let entries = found.iter().map(|row| rows::meta(row, &range.namespace, range.kind)).collect();
    Ok(page_of(entries, limit))
}

/// Returns entries in an order, opened: as many rows as are needed are fetched, all of one moment.
pub(super) async fn scan(
    db: &mut Object,
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
            params.extend([&prefix as &(dyn ToSql + Sync), &upper]);
            match order {
                Order::KeyAscending => SCAN_ASCENDING,
                Order::KeyDescending => SCAN_DESCENDING,
                Order::NewestFirst => SCAN_NEWEST,
            }
        }
    };
    let statement = db.prepare_cached(sql).await?;
    let transaction = db.transaction().await?;
    let portal = transaction.bind(&statement, &params).await?;
    let mut scan = Scan::default();
    while scan.entries.len() < limit {
        let wanted = (limit - scan.entries.len()).min(CHUNK);
        let found = transaction.query_portal(&portal, i32::try_from(wanted).unwrap_or(i32::MAX)).await?;
        let is_last = found.len() < wanted;
        let raw: Vec<RawRow> = found.iter().map(|row| rows::raw(row, &range.namespace, range.kind)).collect();
        for opened in open_all(raw, seal).await? {
            match opened {
                Ok(entry) => scan.entries.push(entry),
                Err(_) => scan.unreadable += 1,
            }
        }
        if is_last {
            break;
        }
    }
    Ok(scan)
}

/// Returns the next rows of all namespaces, opened.
pub(super) async fn walk(db: &Object, after: Option<&Mark>, limit: usize, seal: &Arc<dyn Seal>) -> Outcome<Walk> {
    let ahead = Ahead::look(db, after, limit).await?;
    let found = by_id(db, &ahead.ids).await?;
    // A row without a space, or of an unknown kind, was planted, and cannot be named.
    let raw: Vec<RawRow> = found
        .iter()
        .filter_map(|row| rows::space(row, rows::RAW).map(|(namespace, kind)| rows::raw(row, &namespace, kind)))
        .collect();
    let known: Vec<_> = raw.iter().map(|row| (row.meta.clone(), row.sealed.key_id.clone())).collect();
    let opened = open_all(raw, seal).await?;
    let rows = known.into_iter().zip(opened).map(|((meta, key_id), opened)| {
        let value = opened.map(|entry| entry.value).map_err(|error| match error {
            StoreError::Unreadable { reason } => reason,
            _ => "it could not be opened",
        });
        Walked { meta, key_id, value }
    });
    Ok(Walk { rows: rows.collect(), next: ahead.next })
}

/// Returns rows with their spaces (tenant, subject, session, kind) and ids (entry, space).
pub(super) async fn by_id(db: &Object, ids: &[i64]) -> Outcome<Vec<Row>> {
    all(db, WALK, &[&ids]).await
}

/// The rows of the next step of a walk.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Their ids.
    pub(super) ids: Vec<i64>,
    /// The ids of the keys that they name.
    pub(super) key_ids: Vec<String>,
    /// Where the step after this one starts.
    pub(super) next: Option<Mark>,
}

impl Ahead {
    /// Looks which rows come after a mark: at most `limit`, and at most about [`WALK_BYTES`] of values.
    pub(super) async fn look(db: &Object, after: Option<&Mark>, limit: usize) -> Outcome<Self> {
        let after: i64 = match after {
            None => i64::MIN,
            Some(Mark(text)) => text.parse().map_err(|_| StoreError::Invalid("the mark was not made by a store"))?,
        };
        let statement = db.prepare_cached(WALK_AHEAD).await?;
        let found = db.query(&statement, &[&after, &rows::limit(limit)]).await?;
        let mut bytes = 0;
        let fitting = found.iter().take_while(|row| {
            let fits = bytes < WALK_BYTES as u64;
            bytes += rows::unsigned(row, 1);
            fits
        });
        let (ids, key_ids): (Vec<i64>, Vec<String>) = fitting
            .map(|row| (get::<i64>(row, 0).unwrap_or_default(), get::<String>(row, 2).unwrap_or_default()))
            .unzip();
        let is_last = found.len() < limit && ids.len() == found.len();
        let next = ids.last().filter(|_| !is_last).map(|id| Mark(id.to_string()));
        Ok(Self { ids, key_ids, next })
    }
}

async fn open_all(raw: Vec<RawRow>, seal: &Arc<dyn Seal>) -> Outcome<Vec<crate::Result<Entry>>> {
    let seal = Arc::clone(seal);
    let bytes = raw.iter().map(|row| row.sealed.value.len()).sum();
    rows::open(bytes, move || raw.into_iter().map(|row| seal.open(row)).collect()).await
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

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.tenant, &self.subject, &self.kind, &self.session, &self.now]
    }
}

/// Reads all rows of a query without parameters but the time.
pub(super) async fn all(db: &Object, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Outcome<Vec<Row>> {
    let statement = db.prepare_cached(sql).await?;
    Ok(db.query(&statement, params).await?)
}
