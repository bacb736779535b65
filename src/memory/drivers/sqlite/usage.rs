//! Changes of a group of batches to the counters, gathered in memory.
//!
//! They are written once, before the commit, and last for one transaction: between two transactions
//! another process may have changed every number.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension};

use crate::entry::{Kind, Namespace};
use crate::error::Result;

/// A key space: a kind within a namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    /// Its row in `memory_spaces`.
    pub(super) id: i64,
    /// Its rows.
    pub(super) rows: i64,
    /// What they take.
    pub(super) bytes: i64,
}

/// The counters that a transaction touched.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    ids: HashMap<(Namespace, Kind), i64>,
    spaces: HashMap<i64, Space>,
    keys: HashMap<String, i64>,
}

impl Usage {
    /// Returns a space, `None` if there is none.
    pub(super) fn find(
        &mut self,
        db: &Connection,
        namespace: &Namespace,
        kind: Kind,
    ) -> Result<Option<i64>> {
        if let Some(id) = self.ids.get(&(namespace.clone(), kind)) {
            return Ok(Some(*id));
        }
        let found = db
            .prepare_cached(
                "SELECT id FROM memory_spaces WHERE tenant = ?1 AND subject = ?2 AND session IS ?3 AND kind = ?4",
            )?
            .query_row((&*namespace.tenant, &*namespace.subject, namespace.session.as_deref(), kind.as_str()), |row| {
                row.get(0)
            })
            .optional()?;
        if let Some(id) = found {
            self.ids.insert((namespace.clone(), kind), id);
        }
        Ok(found)
    }

    /// Returns a space, made if there is none.
    pub(super) fn find_or_make(
        &mut self,
        db: &Connection,
        namespace: &Namespace,
        kind: Kind,
    ) -> Result<Space> {
        let id = match self.find(db, namespace, kind)? {
            Some(id) => id,
            None => {
                let id = db
                    .prepare_cached(
                        "INSERT INTO memory_spaces (tenant, subject, session, kind) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .insert((&*namespace.tenant, &*namespace.subject, namespace.session.as_deref(), kind.as_str()))?;
                self.ids.insert((namespace.clone(), kind), id);
                self.spaces.insert(
                    id,
                    Space {
                        id,
                        rows: 0,
                        bytes: 0,
                    },
                );
                id
            }
        };
        self.space(db, id)
    }

    /// Returns a space by its row.
    pub(super) fn space(&mut self, db: &Connection, id: i64) -> Result<Space> {
        if let Some(space) = self.spaces.get(&id) {
            return Ok(*space);
        }
        let counted = db
            .prepare_cached("SELECT rows, bytes FROM memory_spaces WHERE id = ?1")?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        // An entry whose space is gone was planted; it can still be deleted.
        let (rows, bytes) = counted.unwrap_or((0, 0));
        let space = Space { id, rows, bytes };
        self.spaces.insert(id, space);
        Ok(space)
    }

    /// Counts the rows of a space, for when its counters turn out to be false.
    pub(super) fn recount(&mut self, db: &Connection, id: i64) -> Result<()> {
        let (rows, bytes) = db
            .prepare_cached("SELECT count(*), coalesce(sum(min(max(cost, 0), 4294967296)), 0) FROM memory_entries WHERE space_id = ?1")?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        self.spaces.insert(id, Space { id, rows, bytes });
        Ok(())
    }

    /// Returns what each space of a kind takes, with its row.
    pub(super) fn shares(&self, db: &Connection, kind: Kind) -> Result<Vec<(i64, i64)>> {
        let mut statement =
            db.prepare_cached("SELECT bytes, id FROM memory_spaces WHERE kind = ?1")?;
        let shares = statement.query_map([kind.as_str()], |row| {
            let (bytes, id) = (row.get(0)?, row.get(1)?);
            Ok((self.spaces.get(&id).map_or(bytes, |space| space.bytes), id))
        })?;
        Ok(shares.collect::<Result<_, _>>()?)
    }

    /// Counts added or deleted rows and bytes.
    pub(super) fn count(&mut self, db: &Connection, id: i64, rows: i64, bytes: i64) -> Result<()> {
        let space = self.space(db, id)?;
        let changed = Space {
            id,
            rows: space.rows.saturating_add(rows).max(0),
            bytes: space.bytes.saturating_add(bytes).max(0),
        };
        self.spaces.insert(id, changed);
        Ok(())
    }

    /// Counts added or deleted rows of a key.
    pub(super) fn count_key(&mut self, key_id: &str, rows: i64) {
        match self.keys.get_mut(key_id) {
            Some(count) => *count += rows,
            None => {
                self.keys.insert(key_id.to_owned(), rows);
            }
        }
    }

    /// Writes the counters; a space without rows is deleted.
    pub(super) fn write(&self, db: &Connection) -> Result<()> {
        for space in self.spaces.values() {
            let is_empty = space.rows == 0
                && db
                    .prepare_cached(
                        "DELETE FROM memory_spaces WHERE id = ?1
                           AND NOT EXISTS (SELECT 1 FROM memory_entries WHERE space_id = ?1)",
                    )?
                    .execute([space.id])?
                    > 0;
            if !is_empty {
                db.prepare_cached("UPDATE memory_spaces SET rows = ?2, bytes = ?3 WHERE id = ?1")?
                    .execute((space.id, space.rows, space.bytes))?;
            }
        }
        for (key_id, rows) in self.keys.iter().filter(|(_, rows)| **rows != 0) {
            db.prepare_cached(
                "INSERT INTO memory_keys (key_id, rows) VALUES (?1, max(?2, 0))
                 ON CONFLICT (key_id) DO UPDATE SET rows = max(rows + ?2, 0)",
            )?
            .execute((key_id, rows))?;
        }
        Ok(())
    }
}
