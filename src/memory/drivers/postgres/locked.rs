//! Locks the spaces that a transaction will write to, and reads the rows that it will replace.
//!
//! This happens first, and in one order for all replicas, so that they cannot deadlock.

use std::collections::BTreeMap;

use futures_util::future::join3;
use helmdeck_core::Timestamp;
use tokio_postgres::Row;

use super::db::{Db, Param};
use super::error::{Outcome, unavailable};
use super::rows::{self, get};
use super::work::{ChangedRow, DriverStore, Next, RowKey, Space, Work};
use crate::entry::{Kind, Namespace};
use crate::requests::Existing;

/// A space by name.
pub(super) type Name = (Namespace, Kind);

/// A row by name.
pub(super) type RowName<'b> = (&'b Namespace, Kind, &'b str);

macro_rules! named {
    () => {
        "s.tenant = n.tenant AND s.subject = n.subject AND s.kind = n.kind
         AND coalesce('\\x01'::bytea || s.session, '\\x'::bytea) = n.session"
    };
}
macro_rules! row_columns {
    () => {
        "n.at, e.space_id, e.version, e.created_at, e.updated_at, e.expires_at, e.cost, e.key_id, e.tags"
    };
}

/// Looks the ids up first: the order of the locks must not make it walk over all spaces by id.
const LOCK_NAMED: &str = concat!(
    "SELECT s.id, s.rows, s.bytes, s.tenant, s.subject, s.session, s.kind FROM memory_spaces s
      WHERE s.id = ANY(ARRAY(
            SELECT f.id FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bytea[]) AS n(tenant, subject, kind, session)
             CROSS JOIN LATERAL (SELECT s.id FROM memory_spaces s WHERE ",
    named!(),
    " OFFSET 0) f)) ORDER BY s.id FOR UPDATE"
);
const NAMED: &str = concat!(
    "SELECT s.id FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bytea[]) AS n(tenant, subject, kind, session)
       JOIN memory_spaces s ON ",
    named!()
);
const WITH_HAND: &str = concat!(
    "SELECT s.id, s.tenant, s.subject, s.session, s.kind
       FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bytea[]) AS n(tenant, subject, kind, session)
      CROSS JOIN LATERAL (SELECT s.id, s.tenant, s.subject, s.session, s.kind FROM memory_spaces s WHERE ",
    named!(),
    " OFFSET 0) s
      CROSS JOIN LATERAL (SELECT 1 FROM memory_hands h WHERE h.space_id = s.id OFFSET 0) h"
);
const LOCK: &str =
    "SELECT id, rows, bytes FROM memory_spaces WHERE id = ANY($1) ORDER BY id FOR UPDATE";
/// A sweep skips spaces that other transactions write into.
const LOCK_FREE: &str = "SELECT id, rows, bytes FROM memory_spaces WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED";
const MAKE: &str = "
INSERT INTO memory_spaces (tenant, subject, kind, session)
SELECT n.tenant, n.subject, n.kind, CASE WHEN n.session = '\\x' THEN NULL ELSE substring(n.session FROM 2) END
  FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bytea[]) AS n(tenant, subject, kind, session)
 ORDER BY 1, 2, 3, 4 ON CONFLICT DO NOTHING";
/// Query of rows by name.
///
/// `OFFSET 0` makes each row a separate lookup by its whole key, not a filter over the rows of its
/// space.
const LOOK_NAMED: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bytea[], $5::bytea[])
             WITH ORDINALITY AS n(tenant, subject, kind, session, key, at)
        CROSS JOIN LATERAL (SELECT s.id FROM memory_spaces s WHERE ",
    named!(),
    " OFFSET 0) s
        CROSS JOIN LATERAL (SELECT * FROM memory_entries e WHERE e.space_id = s.id AND e.key = n.key OFFSET 0) e"
);
const LOOK: &str = concat!(
    "SELECT ",
    row_columns!(),
    " FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS n(space_id, key, at)
        CROSS JOIN LATERAL (SELECT * FROM memory_entries e WHERE e.space_id = n.space_id AND e.key = n.key OFFSET 0) e"
);

/// How often spaces that vanish between two looks are made again.
const TRIES: usize = 10;

/// Names of spaces as columns.
#[derive(Default)]
struct Columns<'n> {
    tenants: Vec<&'n [u8]>,
    subjects: Vec<&'n [u8]>,
    kinds: Vec<&'static str>,
    sessions: Vec<Vec<u8>>,
}

impl<'n> Columns<'n> {
    fn of(names: impl Iterator<Item = &'n Name>) -> Self {
        let mut columns = Self::default();
        for (namespace, kind) in names {
            columns.push(namespace, *kind);
        }
        columns
    }

    fn push(&mut self, namespace: &'n Namespace, kind: Kind) {
        self.tenants.push(namespace.tenant.as_bytes());
        self.subjects.push(namespace.subject.as_bytes());
        self.kinds.push(kind.as_str());
        self.sessions.push(rows::session_name(namespace));
    }

    fn params(&self) -> Vec<&dyn Param> {
        vec![&self.tenants, &self.subjects, &self.kinds, &self.sessions]
    }
}

/// Locks spaces by name and reads rows, in most cases in one round trip.
///
/// Begins a transaction if there is none, and creates missing spaces.
pub(super) async fn begin(
    db: &Db,
    names: &BTreeMap<Name, bool>,
    rows: &[RowName<'_>],
    mut has_begun: bool,
) -> Outcome<Work> {
    let spaces = Columns::of(names.keys());
    let mut places = Columns::default();
    for (namespace, kind, _) in rows {
        places.push(namespace, *kind);
    }
    let keys: Vec<&[u8]> = rows.iter().map(|(_, _, key)| key.as_bytes()).collect();
    let space_params = spaces.params();
    let mut row_params = places.params();
    row_params.push(&keys);
    let (lock, look) = (
        db.ready(LOCK_NAMED, &space_params).await?,
        db.ready(LOOK_NAMED, &row_params).await?,
    );
    for _ in 0..TRIES {
        // Everything is sent at once, in this order; a statement sees what was committed before it
        // began.
        let begin = async { if has_begun { Ok(()) } else { db.begin().await } };
        let (began, locked, looked) = join3(begin, db.rows(&lock), db.rows(&look)).await;
        began?;
        has_begun = true;
        let mut work = Work::default();
        for row in &locked? {
            let id = get(row, 0).unwrap_or_default();
            work.names
                .extend(rows::space(row, 3).map(|name| (name, id)));
            work.spaces.insert(id, space(row, 1));
        }
        let missing = names
            .iter()
            .filter(|(name, needed)| **needed && !work.names.contains_key(name));
        let missing = Columns::of(missing.map(|(name, _)| name));
        if missing.tenants.is_empty() {
            drop(missing);
            fill(&mut work, rows, &looked?);
            return Ok(work);
        }
        db.execute(MAKE, &missing.params()).await?;
    }
    Err(unavailable("spaces come and go too fast".to_owned()).into())
}

/// Returns the ids of spaces by name; missing ones are left out.
pub(super) async fn ids(db: &Db, names: impl Iterator<Item = &Name>) -> Outcome<Vec<i64>> {
    let names = Columns::of(names);
    let found = db.query(NAMED, &names.params()).await?;
    Ok(found.iter().filter_map(|row| get(row, 0)).collect())
}

/// Returns the spaces of cached answers in namespaces, those from which rows were evicted before.
pub(super) async fn with_hand(
    db: &Db,
    namespaces: impl Iterator<Item = &Namespace>,
) -> Outcome<Vec<(i64, Namespace)>> {
    let mut names = Columns::default();
    for namespace in namespaces {
        names.push(namespace, Kind::Cache);
    }
    let found = db.query(WITH_HAND, &names.params()).await?;
    Ok(found
        .iter()
        .filter_map(|row| Some((get(row, 0)?, rows::space(row, 1)?.0)))
        .collect())
}

fn fill(work: &mut Work, rows: &[RowName<'_>], looked: &[Row]) {
    let mut found: Vec<Option<(i64, DriverStore)>> = rows.iter().map(|_| None).collect();
    for row in looked {
        if let Some(place) = found.get_mut(index(row)) {
            *place = Some((get(row, 1).unwrap_or_default(), stored(row)));
        }
    }
    for ((namespace, kind, key), found) in rows.iter().zip(found) {
        if let Some(place) = work.place(namespace, *kind, key) {
            let stored = found
                .filter(|(space, _)| *space == place.0)
                .map(|(_, stored)| stored);
            work.slots.insert(
                place,
                ChangedRow {
                    stored,
                    next: Next::Same,
                },
            );
        }
    }
}

/// Locks more spaces by id, and says which of them are locked now.
pub(super) async fn lock(
    db: &Db,
    work: &mut Work,
    ids: &[i64],
    only_free: bool,
) -> Outcome<Vec<i64>> {
    let sql = if only_free { LOCK_FREE } else { LOCK };
    let mut locked = Vec::new();
    for row in &db.query(sql, &[&ids]).await? {
        let id = get(row, 0).unwrap_or_default();
        work.spaces.entry(id).or_insert_with(|| space(row, 1));
        locked.push(id);
    }
    Ok(locked)
}

/// Looks at a row again, after the database was written.
pub(super) async fn look(db: &Db, work: &mut Work, place: &RowKey) -> Outcome<()> {
    let found = db
        .query_opt(
            LOOK,
            &[&[place.0].as_slice(), &[place.1.as_bytes()].as_slice()],
        )
        .await?;
    work.slots.insert(
        place.clone(),
        ChangedRow {
            stored: found.as_ref().map(stored),
            next: Next::Same,
        },
    );
    Ok(())
}

/// Reads which of the requested items a row answers, counted from 1.
fn index(row: &Row) -> usize {
    get::<i64>(row, 0)
        .and_then(|at| usize::try_from(at - 1).ok())
        .unwrap_or(usize::MAX)
}

fn space(row: &Row, first: usize) -> Space {
    let bytes = get(row, first + 1).unwrap_or_default();
    Space {
        rows: get(row, first).unwrap_or_default(),
        bytes,
        stored_bytes: bytes,
        changed: false,
    }
}

fn stored(row: &Row) -> DriverStore {
    DriverStore {
        existing: Existing {
            version: rows::unsigned(row, 2),
            created_at: Timestamp(get(row, 3).unwrap_or_default()),
            updated_at: Timestamp(get(row, 4).unwrap_or_default()),
        },
        expires_at: get::<Option<i64>>(row, 5).flatten().map(Timestamp),
        // Not bound by the seal: it may say anything.
        cost: get::<i64>(row, 6).unwrap_or_default().clamp(0, 1 << 32),
        key_id: get(row, 7).unwrap_or_default(),
        tags: rows::tags(row, 8),
    }
}
