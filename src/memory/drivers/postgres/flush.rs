//! Writes the result of a transaction in one round trip: a few statements for any number of rows.

use std::collections::HashMap;

use futures_util::future::join_all;
use helmdeck_core::numbers::signed;
use tokio_postgres::Row;

use super::connect::within;
use super::db::{Db, Param, Ready};
use super::error::{Failure, Outcome};
use super::outbox::{ANNOUNCE, Transaction, server_run};
use super::rows::{get, json};
use super::work::{Next, Work};
use crate::entry::EntryMeta;
use crate::key::hex;
use crate::sealed::SealedValue;

/// `OFFSET 0` makes each tag a lookup by its whole key, not a filter over the tags of its space.
const DELETE: &str = "
WITH gone AS (
    DELETE FROM memory_entries e USING unnest($1::bigint[], $2::bytea[]) AS n(space_id, key)
     WHERE e.space_id = n.space_id AND e.key = n.key RETURNING e.id, e.space_id, e.tags)
DELETE FROM memory_tags t USING (SELECT g.space_id, n.tag, g.id FROM gone g, unnest(g.tags) AS n(tag) OFFSET 0) o
 WHERE t.space_id = o.space_id AND t.tag = o.tag AND t.entry_id = o.id";
/// Replaces rows, and removes the tags that they no longer have.
///
/// Tags come as texts of lists: PostgreSQL has no lists of lists of different lengths.
macro_rules! updated {
    () => {
        "WITH updated AS (
    UPDATE memory_entries e
       SET version = n.version, created_at = n.created_at, updated_at = n.updated_at, expires_at = n.expires_at,
           key_id = n.key_id, fingerprint = n.fingerprint, category = n.category, tags = n.tags::bytea[],
           attributes = n.attributes, cost = n.cost, value_nonce = n.value_nonce, value_ciphertext = n.value_ciphertext
      FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
                  $8::bytea[], $9::text[], $10::text[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[],
                  $15::text[])
        AS n(space_id, version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags, attributes, cost,
             value_nonce, value_ciphertext, key, old_tags)
     WHERE e.space_id = n.space_id AND e.key = n.key
    RETURNING e.id, e.space_id, e.tags, n.old_tags::bytea[] AS old_tags),
untagged AS (
    DELETE FROM memory_tags t
     USING (SELECT u.space_id, n.tag, u.id FROM updated u, unnest(u.old_tags) AS n(tag)
             WHERE n.tag <> ALL (u.tags) OFFSET 0) o
     WHERE t.space_id = o.space_id AND t.tag = o.tag AND t.entry_id = o.id)"
    };
}
/// Writes the tags that replaced rows get.
macro_rules! update_tags {
    () => {
        "
INSERT INTO memory_tags (space_id, tag, entry_id)
SELECT DISTINCT u.space_id, n.tag, u.id FROM updated u, unnest(u.tags) AS n(tag) WHERE n.tag <> ALL (u.old_tags)
ON CONFLICT DO NOTHING"
    };
}
/// Replaces rows, beside `$more`.
macro_rules! update {
    ($more:expr) => {
        concat!(updated!(), $more, update_tags!())
    };
}
const UPDATE: &str = update!("");
/// Writes the counters of spaces, by three lists.
macro_rules! count {
    ($ids:literal, $rows:literal, $bytes:literal) => {
        concat!(
            "UPDATE memory_spaces s SET rows = n.rows, bytes = n.bytes FROM unnest(",
            $ids,
            "::bigint[], ",
            $rows,
            "::bigint[], ",
            $bytes,
            "::bigint[]) AS n(id, rows, bytes) WHERE s.id = n.id"
        )
    };
}
/// Adds to the counters of keys, by three lists.
macro_rules! count_keys {
    ($spaces:literal, $keys:literal, $rows:literal) => {
        concat!(
            "INSERT INTO memory_keys AS k (space_id, key_id, rows) SELECT * FROM unnest(",
            $spaces,
            "::bigint[], ",
            $keys,
            "::text[], ",
            $rows,
            "::bigint[]) ON CONFLICT (space_id, key_id) DO UPDATE SET rows = k.rows + excluded.rows"
        )
    };
}
/// Inserts rows, given as the parameters `$lists`.
macro_rules! inserted {
    ($lists:literal) => {
        concat!(
            "inserted AS (
    INSERT INTO memory_entries (space_id, version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags,
                                attributes, cost, value_nonce, value_ciphertext, key)
    SELECT n.space_id, n.version, n.created_at, n.updated_at, n.expires_at, n.key_id, n.fingerprint, n.category,
           n.tags::bytea[], n.attributes, n.cost, n.value_nonce, n.value_ciphertext, n.key
      FROM unnest(",
            $lists,
            ") AS n(space_id, version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags, attributes,
                    cost, value_nonce, value_ciphertext, key)
    RETURNING id, space_id, tags)"
        )
    };
}
/// Writes the tags of inserted rows.
macro_rules! insert_tags {
    () => {
        "
INSERT INTO memory_tags (space_id, tag, entry_id)
SELECT DISTINCT i.space_id, n.tag, i.id FROM inserted i, unnest(i.tags) AS n(tag) ON CONFLICT DO NOTHING"
    };
}
/// Inserts rows, beside `$more`, and then their tags.
macro_rules! insert {
    ($more:expr) => {
        concat!(
            "WITH ",
            inserted!(
                "$1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
                  $8::bytea[], $9::text[], $10::text[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[]"
            ),
            $more,
            insert_tags!()
        )
    };
}
const INSERT: &str = insert!("");
/// One statement, for what nearly every write does.
const INSERT_COUNTED: &str = insert!(concat!(
    ", counted AS (",
    count!("$15", "$16", "$17"),
    "), keyed AS (",
    count_keys!("$18", "$19", "$20"),
    ")"
));
/// The same for rows that replace others.
const UPDATE_COUNTED: &str = update!(concat!(", counted AS (", count!("$16", "$17", "$18"), ")"));
/// The same for rows of both sorts: a turn, and the head of its conversation.
const UPDATE_INSERT_COUNTED: &str = concat!(
    updated!(),
    ", retagged AS (",
    update_tags!(),
    "), ",
    inserted!(
        "$16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::text[], $22::text[],
                  $23::bytea[], $24::text[], $25::text[], $26::bigint[], $27::bytea[], $28::bytea[], $29::bytea[]"
    ),
    ", counted AS (",
    count!("$30", "$31", "$32"),
    "), keyed AS (",
    count_keys!("$33", "$34", "$35"),
    ")",
    insert_tags!()
);
const COUNT: &str = count!("$1", "$2", "$3");
const COUNT_KEYS: &str = count_keys!("$1", "$2", "$3");
/// Deletes a space without rows, and its counters.
const TIDY_SPACES: &str = "
WITH gone AS (
    DELETE FROM memory_spaces s
     WHERE s.id = ANY($1) AND NOT EXISTS (SELECT 1 FROM memory_entries e WHERE e.space_id = s.id) RETURNING s.id),
untagged AS (DELETE FROM memory_tags t USING gone g WHERE t.space_id = g.id),
unhanded AS (DELETE FROM memory_hands h USING gone g WHERE h.space_id = g.id)
DELETE FROM memory_keys k USING gone g WHERE k.space_id = g.id";
const TIDY_KEYS: &str = "DELETE FROM memory_keys WHERE space_id = ANY($1) AND rows <= 0";

/// What comes with the commit besides the rows.
#[derive(Debug)]
pub(super) struct Notice {
    /// The process that deletes.
    pub(super) origin: i64,
    /// What it deletes.
    pub(super) payload: String,
}

/// Statements to be sent together, with what they are given.
#[derive(Default)]
struct Script<'p> {
    steps: Vec<(&'static str, Vec<&'p dyn Param>)>,
}

impl<'p> Script<'p> {
    fn add(&mut self, wanted: bool, sql: &'static str, params: &[&'p dyn Param]) {
        if wanted {
            self.steps.push((sql, params.to_vec()));
        }
    }

    /// Sends all of it at once, and returns the rows of the last statement.
    ///
    /// The first failure is that of the whole: the server skips what follows it.
    async fn run(self, db: &Db, commit: bool) -> Outcome<Vec<Row>> {
        let mut ready: Vec<Ready<'_>> = Vec::with_capacity(self.steps.len());
        for (sql, params) in self.steps {
            ready.push(within(db.ready(sql, &params)).await?);
        }
        // Futures send when they are first polled, and they are polled in this order.
        let sent = join_all(ready.iter().map(|ready| db.rows(ready)));
        let last = |done: Vec<Result<Vec<Row>, tokio_postgres::Error>>| {
            done.into_iter().try_fold(Vec::new(), |_, rows| rows)
        };
        if !commit {
            return within(async { last(sent.await) }).await;
        }
        let done = within(async {
            let (done, committed) = futures_util::future::join(sent, db.commit()).await;
            let rows = last(done)?;
            committed.map(|()| rows)
        });
        done.await.map_err(Failure::after_commit)
    }
}

/// Columns of rows, one list each.
#[derive(Default)]
pub(super) struct Columns<'w> {
    spaces: Vec<i64>,
    versions: Vec<i64>,
    created: Vec<i64>,
    updated: Vec<i64>,
    ends: Vec<Option<i64>>,
    key_ids: Vec<&'w str>,
    fingerprints: Vec<&'w str>,
    categories: Vec<&'w [u8]>,
    tags: Vec<String>,
    attributes: Vec<String>,
    costs: Vec<i64>,
    nonces: Vec<&'w [u8]>,
    values: Vec<&'w [u8]>,
    keys: Vec<&'w [u8]>,
    /// Of rows that are there.
    old_tags: Vec<String>,
}

impl<'w> Columns<'w> {
    /// Adds a row.
    pub(super) fn push(
        &mut self,
        (space, key): (i64, &'w str),
        meta: &'w EntryMeta,
        sealed: &'w SealedValue,
    ) -> Outcome<()> {
        self.spaces.push(space);
        self.keys.push(key.as_bytes());
        self.versions.push(signed(meta.version));
        self.created.push(meta.created_at.micros());
        self.updated.push(meta.updated_at.micros());
        self.ends.push(meta.expires_at.map(|end| end.micros()));
        self.key_ids.push(&sealed.key_id);
        self.fingerprints.push(&meta.fingerprint);
        self.categories.push(meta.category.as_bytes());
        self.tags.push(list(&meta.tags));
        self.attributes.push(json(&meta.attributes)?);
        self.costs.push(signed(meta.cost()));
        self.nonces.push(&sealed.nonce);
        self.values.push(&sealed.value);
        Ok(())
    }

    /// Returns the lists, that of the spaces first.
    pub(super) fn params(&self) -> [&dyn Param; 14] {
        [
            &self.spaces,
            &self.versions,
            &self.created,
            &self.updated,
            &self.ends,
            &self.key_ids,
            &self.fingerprints,
            &self.categories,
            &self.tags,
            &self.attributes,
            &self.costs,
            &self.nonces,
            &self.values,
            &self.keys,
        ]
    }
}

/// Writes a list of texts as PostgreSQL reads a `bytea[]`: `{"\\x6162"}`.
fn list(texts: &[String]) -> String {
    let items: Vec<String> = texts
        .iter()
        .map(|text| format!("\"\\\\x{}\"", hex(text.as_bytes())))
        .collect();
    format!("{{{}}}", items.join(","))
}

/// The rows that change, sorted by what has to be done.
#[derive(Default)]
struct Changes<'w> {
    /// Spaces and keys of deleted rows.
    deletes: (Vec<i64>, Vec<&'w [u8]>),
    updates: Columns<'w>,
    inserts: Columns<'w>,
    keys: HashMap<(i64, &'w str), i64>,
}

impl<'w> Changes<'w> {
    fn of(work: &'w Work) -> Outcome<Self> {
        let mut changes = Self::default();
        for ((space, key_id), rows) in &work.gone {
            *changes.keys.entry((*space, key_id)).or_default() -= rows;
        }
        // In one order everywhere, so that concurrent transactions cannot deadlock.
        let mut places: Vec<_> = work.slots.iter().collect();
        places.sort_unstable_by_key(|(place, _)| *place);
        for (place, slot) in places {
            let (space, key) = place;
            let stored = slot
                .stored
                .as_ref()
                .filter(|_| !matches!(slot.next, Next::Same));
            if let Some(stored) = stored {
                *changes.keys.entry((*space, &stored.key_id)).or_default() -= 1;
            }
            match (stored, &slot.next) {
                (Some(_), Next::Nothing) => {
                    changes.deletes.0.push(*space);
                    changes.deletes.1.push(key.as_bytes());
                }
                (stored, Next::Fresh(fresh)) => {
                    *changes
                        .keys
                        .entry((*space, &fresh.sealed.key_id))
                        .or_default() += 1;
                    if let Some(stored) = stored {
                        changes
                            .updates
                            .push((*space, key), &fresh.meta, &fresh.sealed)?;
                        changes.updates.old_tags.push(list(&stored.tags));
                    } else {
                        changes
                            .inserts
                            .push((*space, key), &fresh.meta, &fresh.sealed)?;
                    }
                }
                _ => {}
            }
        }
        changes.keys.retain(|_, rows| *rows != 0);
        Ok(changes)
    }

    /// Adds what changes rows. With counters, they are part of its last statement where that saves
    /// one; the result says which of them still have to be written.
    fn add_to<'p>(
        &'p self,
        script: &mut Script<'p>,
        counted: Option<&'p Counted<'_>>,
    ) -> Uncounted {
        let Self {
            deletes,
            updates,
            inserts,
            ..
        } = self;
        script.add(!deletes.0.is_empty(), DELETE, &[&deletes.0, &deletes.1]);
        let mut update = updates.params().to_vec();
        update.push(&updates.old_tags);
        let (updates, has_inserts) = (!updates.spaces.is_empty(), !inserts.spaces.is_empty());
        match counted {
            Some(counted) if has_inserts => {
                let insert = [
                    &inserts.params()[..],
                    &counted.spaces()[..],
                    &counted.keys()[..],
                ]
                .concat();
                script.add(
                    updates,
                    UPDATE_INSERT_COUNTED,
                    &[&update[..], &insert[..]].concat(),
                );
                script.add(!updates, INSERT_COUNTED, &insert);
                Uncounted {
                    spaces: false,
                    keys: false,
                }
            }
            Some(counted) if updates => {
                script.add(
                    true,
                    UPDATE_COUNTED,
                    &[&update[..], &counted.spaces()[..]].concat(),
                );
                Uncounted {
                    spaces: false,
                    keys: !counted.key_ids.is_empty(),
                }
            }
            counted => {
                script.add(updates, UPDATE, &update);
                script.add(has_inserts, INSERT, &inserts.params());
                let keys = counted.is_some_and(|counted| !counted.key_ids.is_empty());
                Uncounted {
                    spaces: counted.is_some_and(|counted| !counted.ids.is_empty()),
                    keys,
                }
            }
        }
    }
}

/// Counters that no statement writes yet.
#[derive(Debug, Clone, Copy)]
struct Uncounted {
    spaces: bool,
    keys: bool,
}

/// Counters of spaces and keys, as columns.
struct Counted<'w> {
    ids: Vec<i64>,
    rows: Vec<i64>,
    bytes: Vec<i64>,
    key_spaces: Vec<i64>,
    key_ids: Vec<&'w str>,
    key_rows: Vec<i64>,
}

impl<'w> Counted<'w> {
    fn of(work: &Work, changes: &Changes<'w>) -> Self {
        let changed: Vec<_> = work
            .spaces
            .iter()
            .filter(|(_, space)| space.changed)
            .collect();
        let mut keys: Vec<_> = changes.keys.iter().collect();
        keys.sort_unstable();
        Self {
            ids: changed.iter().map(|(id, _)| **id).collect(),
            rows: changed.iter().map(|(_, space)| space.rows).collect(),
            bytes: changed.iter().map(|(_, space)| space.bytes).collect(),
            key_spaces: keys.iter().map(|((space, _), _)| *space).collect(),
            key_ids: keys.iter().map(|((_, key_id), _)| *key_id).collect(),
            key_rows: keys.iter().map(|(_, rows)| **rows).collect(),
        }
    }

    fn spaces(&self) -> [&dyn Param; 3] {
        [&self.ids, &self.rows, &self.bytes]
    }

    fn keys(&self) -> [&dyn Param; 3] {
        [&self.key_spaces, &self.key_ids, &self.key_rows]
    }
}

/// Writes the rows that change. After it, what was known of them is out of date.
pub(super) async fn rows(db: &Db, work: &Work) -> Outcome<()> {
    let changes = Changes::of(work)?;
    let mut script = Script::default();
    changes.add_to(&mut script, None);
    script.run(db, false).await.map(drop)
}

/// Writes everything and commits. Returns the transaction of the notice.
pub(super) async fn commit(
    db: &Db,
    work: &Work,
    notice: Option<&Notice>,
) -> Outcome<Option<Transaction>> {
    let changes = Changes::of(work)?;
    let counted = Counted::of(work, &changes);
    let mut script = Script::default();
    let left = changes.add_to(&mut script, Some(&counted));
    script.add(left.spaces, COUNT, &counted.spaces());
    script.add(left.keys, COUNT_KEYS, &counted.keys());
    let has_lost = counted.key_rows.iter().any(|rows| *rows < 0);
    script.add(has_lost, TIDY_KEYS, &[&counted.key_spaces]);
    let empty: Vec<i64> = work
        .spaces
        .iter()
        .filter(|(_, space)| space.rows == 0)
        .map(|(id, _)| *id)
        .collect();
    script.add(!empty.is_empty(), TIDY_SPACES, &[&empty]);
    if let Some(notice) = notice {
        script.add(true, ANNOUNCE, &[&notice.origin, &notice.payload]);
    }
    let last = script.run(db, true).await?;
    let announced = last.first().filter(|_| notice.is_some());
    Ok(announced.and_then(|row| {
        Some(Transaction {
            id: get(row, 0)?,
            server: server_run(row, 1)?,
        })
    }))
}
