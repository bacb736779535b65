//! Applies operations to the database, inside the writer's transaction.
//!
//! A single put checks everything before it changes anything but its space, so that a refusal
//! leaves nothing behind: a space without rows is deleted before the commit.

use helmdeck_core::Timestamp;
use helmdeck_core::numbers::{signed, unsigned};
use rusqlite::{Connection, OptionalExtension, Params, Row, Statement};

use super::free_row_ids::{FreeRowIds, scattered};
use super::usage::Usage;
use super::{locks, rows};
use crate::entry::{EntryMeta, Kind, Reach};
use crate::error::{Result, StoreError};
use crate::ops::{Delete, Written};
use crate::requests::{Batch, Existing, PendingOp, PendingWrite};
use crate::sealed::SealedValue;

/// One transaction: the work of a group of batches.
#[derive(Debug)]
pub(super) struct Work<'c> {
    pub(super) db: &'c Connection,
    pub(super) usage: Usage,
    done: Finished,
    free_row_ids: &'c mut FreeRowIds,
}

/// What a transaction leaves to tidy up.
#[derive(Debug, Clone, Default)]
pub(super) struct Finished {
    /// A caller deleted entries.
    pub(super) forgot: bool,
    /// The file may have free pages: rows were deleted, by this transaction or before a sweep.
    pub(super) freed: bool,
    /// Ids of deleted rows, for reuse.
    pub(super) gone: Vec<i64>,
}

/// The stored row that a put replaces.
struct Old {
    id: i64,
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Option<i64>,
    cost: i64,
    key_id: String,
    tags: Vec<String>,
}

impl<'c> Work<'c> {
    /// Starts inside an open transaction.
    pub(super) fn new(db: &'c Connection, free_row_ids: &'c mut FreeRowIds) -> Self {
        Self {
            db,
            usage: Usage::default(),
            done: Finished::default(),
            free_row_ids,
        }
    }

    /// Does a batch: all of it, or nothing and the error of the first operation that failed.
    pub(super) fn batch(&mut self, batch: &Batch) -> Result<Vec<Written>> {
        if let [op] = batch.ops.as_slice() {
            return Ok(vec![self.op(op, batch)?]);
        }
        let (usage, forgot, freed) = (self.usage.clone(), self.done.forgot, self.done.freed);
        let gone = self.done.gone.len();
        self.db.prepare_cached("SAVEPOINT batch")?.execute([])?;
        let done: Result<Vec<Written>> = batch.ops.iter().map(|op| self.op(op, batch)).collect();
        if done.is_err() {
            (self.usage, self.done.forgot, self.done.freed) = (usage, forgot, freed);
            self.done.gone.truncate(gone);
            self.db.prepare_cached("ROLLBACK TO batch")?.execute([])?;
        }
        self.db.prepare_cached("RELEASE batch")?.execute([])?;
        done
    }

    /// Writes the collected changes; the last step before the commit.
    pub(super) fn finish(self) -> Result<Finished> {
        self.usage.write(self.db)?;
        if self.done.forgot {
            self.db
                .prepare_cached("UPDATE memory_generation SET value = value + 1")?
                .execute([])?;
        }
        Ok(self.done)
    }

    fn op(&mut self, op: &PendingOp, batch: &Batch) -> Result<Written> {
        match op {
            PendingOp::Put(pending) => Ok(Written::Put(Box::new(self.put(pending, batch)?))),
            PendingOp::Delete(delete) => {
                self.done.forgot = true;
                Ok(Written::Deleted(self.delete(delete)?))
            }
            PendingOp::Evict { kind, bytes, limit } => Ok(Written::Deleted(self.evict(
                *kind,
                *bytes,
                *limit,
                &batch.reads,
            )?)),
            PendingOp::Sweep(limit) => Ok(Written::Deleted(self.sweep(batch.now, *limit)?)),
        }
    }

    fn put(&mut self, pending: &PendingWrite, batch: &Batch) -> Result<EntryMeta> {
        let put = &pending.put;
        let space = self.usage.find_or_make(self.db, &put.namespace, put.kind)?;
        // Most puts are of new entries: try that first, without a look at what is there.
        if let Some(sealed) = &pending.fresh {
            let meta = pending.resolve(None, batch.now, batch.seal.overhead())?;
            let fits = batch.quotas.of(put.kind).check(
                unsigned(space.rows) + 1,
                unsigned(space.bytes).saturating_add(meta.cost()),
            );
            if fits.is_ok()
                && let Some(id) = self.insert(space.id, &meta, sealed)?
            {
                self.came(space.id, id, &meta, sealed, None)?;
                return Ok(meta);
            }
        }
        let old = self.old(space.id, &put.key)?;
        let existing = old
            .as_ref()
            .filter(|old| old.expires_at.is_none_or(|end| end > batch.now.micros()))
            .map(|old| Existing {
                version: old.version,
                created_at: old.created_at,
                updated_at: old.updated_at,
            });
        let meta = pending.resolve(existing, batch.now, batch.seal.overhead())?;
        self.make_room(
            space.id,
            &meta,
            old.as_ref().map(|old| (old.id, old.cost)),
            batch,
        )?;
        let sealed = pending.seal(&meta, existing.is_none(), &*batch.seal)?;
        let id = match &old {
            Some(old) => self.update(old.id, &meta, &sealed)?,
            None => self
                .insert(space.id, &meta, &sealed)?
                .ok_or_else(|| StoreError::Corrupt("a row is there and is not found".to_owned()))?,
        };
        self.came(space.id, id, &meta, &sealed, old.as_ref())?;
        Ok(meta)
    }

    /// Brings tags and counters up to a row that was written.
    fn came(
        &mut self,
        space: i64,
        id: i64,
        meta: &EntryMeta,
        sealed: &SealedValue,
        old: Option<&Old>,
    ) -> Result<()> {
        let old_tags = old.map_or(&[][..], |old| &old.tags);
        if old_tags != meta.tags {
            self.untag(space, id, old_tags)?;
            self.tag(space, id, &meta.tags)?;
        }
        let bytes = signed(meta.cost()) - old.map_or(0, |old| old.cost);
        self.usage
            .count(self.db, space, i64::from(old.is_none()), bytes)?;
        if let Some(old) = old {
            self.usage.count_key(&old.key_id, -1);
        }
        self.usage.count_key(&sealed.key_id, 1);
        Ok(())
    }

    fn old(&self, space: i64, key: &str) -> Result<Option<Old>> {
        let mut statement = self.db.prepare_cached(
            "SELECT id, version, created_at, expires_at, cost, key_id, tags, updated_at
               FROM memory_entries WHERE space_id = ?1 AND key = ?2",
        )?;
        let row = statement.query_row((space, key), |row| {
            Ok(Old {
                id: row.get(0)?,
                version: rows::unsigned(row.get_ref(1)?),
                created_at: Timestamp(rows::integer(row.get_ref(2)?)),
                expires_at: row.get(3)?,
                cost: rows::cost(row.get_ref(4)?),
                key_id: rows::text(row.get_ref(5)?),
                tags: rows::tags(row.get_ref(6)?),
                updated_at: Timestamp(rows::integer(row.get_ref(7)?)),
            })
        });
        Ok(row.optional()?)
    }

    /// Inserts a row and returns its id, `None` if one is there.
    fn insert(
        &mut self,
        space: i64,
        meta: &EntryMeta,
        sealed: &SealedValue,
    ) -> Result<Option<i64>> {
        let hole = self.free_row_ids.take();
        let mut statement = self.db.prepare_cached(
            "INSERT INTO memory_entries (version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags,
                                         attributes, value_nonce, value_ciphertext, cost, space_id, key, id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT DO NOTHING",
        )?;
        bind(&mut statement, meta, sealed)?;
        statement.raw_bind_parameter(13, space)?;
        statement.raw_bind_parameter(14, &meta.key)?;
        statement.raw_bind_parameter(15, hole)?;
        let mut inserted = statement.raw_execute()? > 0;
        if !inserted && let Some(id) = hole {
            let taken = self
                .db
                .prepare_cached("SELECT 1 FROM memory_entries WHERE id = ?1")?
                .exists([id])?;
            if taken {
                self.free_row_ids.forget();
                statement.raw_bind_parameter(15, None::<i64>)?;
                inserted = statement.raw_execute()? > 0;
            } else {
                self.free_row_ids.give_back(id);
            }
        }
        Ok(inserted.then(|| self.db.last_insert_rowid()))
    }

    fn update(&self, id: i64, meta: &EntryMeta, sealed: &SealedValue) -> Result<i64> {
        let mut statement = self.db.prepare_cached(
            "UPDATE memory_entries
                SET version = ?1, created_at = ?2, updated_at = ?3, expires_at = ?4, key_id = ?5, fingerprint = ?6,
                    category = ?7, tags = ?8, attributes = ?9, value_nonce = ?10, value_ciphertext = ?11, cost = ?12
              WHERE id = ?13",
        )?;
        bind(&mut statement, meta, sealed)?;
        statement.raw_bind_parameter(13, id)?;
        statement.raw_execute()?;
        Ok(id)
    }

    fn delete(&mut self, delete: &Delete) -> Result<u64> {
        match delete {
            Delete::Key {
                namespace,
                kind,
                key,
            } => match self.usage.find(self.db, namespace, *kind)? {
                Some(space) => self.delete_where("space_id = ?1 AND key = ?2", (space, key)),
                None => Ok(0),
            },
            Delete::Prefix {
                namespace,
                kind,
                prefix,
            } => {
                let mut count = 0;
                let whose = namespace.clone().map_or(Reach::Everybody, Reach::One);
                for space in self.spaces(&whose, *kind)? {
                    count += self.delete_where(
                        "space_id = ?1 AND key >= ?2 AND key < ?3",
                        (space, prefix, rows::upper(prefix)),
                    )?;
                }
                Ok(count)
            }
            Delete::Tagged { whose, kind, tag } => {
                let mut count = 0;
                for space in self.spaces(whose, Some(*kind))? {
                    count += self.delete_where(
                        "+space_id = ?1 AND id IN (SELECT entry_id FROM memory_tags WHERE space_id = ?1 AND tag = ?2)",
                        (space, tag),
                    )?;
                }
                Ok(count)
            }
        }
    }

    fn sweep(&mut self, now: Timestamp, limit: usize) -> Result<u64> {
        locks::sweep(self.db, now)?;
        // Those of another process, or of one that ended before it gave them back.
        self.done.freed = true;
        self.delete_where(
            "id IN (SELECT id FROM memory_entries WHERE expires_at IS NOT NULL AND expires_at <= ?1
                     ORDER BY expires_at LIMIT ?2)",
            (now.micros(), i64::try_from(limit).unwrap_or(i64::MAX)),
        )
    }

    /// Returns the spaces within reach, of one kind or of all.
    fn spaces(&self, whose: &Reach, kind: Option<Kind>) -> Result<Vec<i64>> {
        let kind = kind.map(Kind::as_str);
        let id = |row: &Row<'_>| row.get(0);
        let found: Vec<i64> = match whose {
            Reach::One(namespace) => self
                .db
                .prepare_cached(
                    "SELECT id FROM memory_spaces
                      WHERE tenant = ?1 AND subject = ?2 AND session IS ?3 AND (?4 IS NULL OR kind = ?4)",
                )?
                .query_map((&*namespace.tenant, &*namespace.subject, namespace.session.as_deref(), kind), id)?
                .collect::<Result<_, _>>()?,
            Reach::Caller { tenant, subject } => self
                .db
                .prepare_cached(
                    "SELECT id FROM memory_spaces
                      WHERE tenant = ?1 AND subject IN (?2, '') AND (?3 IS NULL OR kind = ?3)",
                )?
                .query_map((&**tenant, &**subject, kind), id)?
                .collect::<Result<_, _>>()?,
            Reach::Everybody => self
                .db
                .prepare_cached("SELECT id FROM memory_spaces WHERE ?1 IS NULL OR kind = ?1")?
                .query_map([kind], id)?
                .collect::<Result<_, _>>()?,
        };
        Ok(found)
    }

    /// Deletes entries with their tags and counts them out. Works on raw rows: nothing is
    /// decrypted.
    ///
    /// A `+` before a column keeps SQLite from choosing that column's index where the other
    /// condition is the narrow one.
    pub(super) fn delete_where(&mut self, condition: &str, params: impl Params) -> Result<u64> {
        let mut statement = self.db.prepare_cached(&format!(
            "DELETE FROM memory_entries WHERE {condition} RETURNING id, space_id, cost, key_id, tags"
        ))?;
        let mut gone = Vec::new();
        let mut found = statement.query(params)?;
        while let Some(row) = found.next()? {
            let (id, space): (i64, i64) = (row.get(0)?, row.get(1)?);
            gone.push((
                id,
                space,
                rows::cost(row.get_ref(2)?),
                rows::text(row.get_ref(3)?),
                rows::tags(row.get_ref(4)?),
            ));
        }
        drop(found);
        for (id, space, cost, key_id, tags) in &gone {
            self.untag(*space, *id, tags)?;
            self.usage.count(self.db, *space, -1, -cost)?;
            self.usage.count_key(key_id, -1);
        }
        self.done.freed |= !gone.is_empty();
        self.done
            .gone
            .extend(scattered(gone.iter().map(|row| row.0).collect()));
        Ok(gone.len() as u64)
    }

    fn tag(&self, space: i64, id: i64, tags: &[String]) -> Result<()> {
        for tag in tags {
            // An entry may name a tag twice.
            self.db
                .prepare_cached("INSERT OR IGNORE INTO memory_tags (space_id, tag, entry_id) VALUES (?1, ?2, ?3)")?
                .execute((space, tag, id))?;
        }
        Ok(())
    }

    fn untag(&self, space: i64, id: i64, tags: &[String]) -> Result<()> {
        for tag in tags {
            self.db
                .prepare_cached(
                    "DELETE FROM memory_tags WHERE space_id = ?1 AND tag = ?2 AND entry_id = ?3",
                )?
                .execute((space, tag, id))?;
        }
        Ok(())
    }
}

/// Binds the columns that an insert and an update share.
fn bind(statement: &mut Statement<'_>, meta: &EntryMeta, sealed: &SealedValue) -> Result<()> {
    statement.raw_bind_parameter(1, signed(meta.version))?;
    statement.raw_bind_parameter(2, meta.created_at.micros())?;
    statement.raw_bind_parameter(3, meta.updated_at.micros())?;
    statement.raw_bind_parameter(4, meta.expires_at.map(Timestamp::micros))?;
    statement.raw_bind_parameter(5, &sealed.key_id)?;
    statement.raw_bind_parameter(6, &meta.fingerprint)?;
    statement.raw_bind_parameter(7, &meta.category)?;
    statement.raw_bind_parameter(8, rows::json(&meta.tags, meta.tags.is_empty(), "[]")?)?;
    statement.raw_bind_parameter(
        9,
        rows::json(&meta.attributes, meta.attributes.is_empty(), "{}")?,
    )?;
    statement.raw_bind_parameter(10, &sealed.nonce)?;
    statement.raw_bind_parameter(11, &sealed.value)?;
    statement.raw_bind_parameter(12, signed(meta.cost()))?;
    Ok(())
}
