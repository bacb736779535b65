//! Plan of a transaction, in memory: its locked spaces and rows, before and after.
//!
//! It does no I/O; `flush` writes the result.

use std::collections::{BTreeMap, HashMap};

use helmdeck_core::Timestamp;
use helmdeck_core::numbers::signed;

use crate::entry::Quota;
use crate::entry::{EntryMeta, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::ops::Delete;
use crate::requests::{Batch, Existing, PendingWrite};
use crate::sealed::SealedValue;

/// Location of a row: its space and its key.
pub(super) type RowKey = (i64, String);

/// A key space that the transaction has locked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    /// Its rows.
    pub(super) rows: i64,
    /// What they count.
    pub(super) bytes: i64,
    /// What they counted when it was locked.
    pub(super) stored_bytes: i64,
    /// Whether the counters are other than stored.
    pub(super) changed: bool,
}

/// Stored row, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct DriverStore {
    /// Its version and times.
    pub(super) existing: Existing,
    /// Expiry.
    pub(super) expires_at: Option<Timestamp>,
    /// What it counts.
    pub(super) cost: i64,
    /// The key that sealed it.
    pub(super) key_id: String,
    /// Its tags.
    pub(super) tags: Vec<String>,
}

/// Row to write.
#[derive(Debug)]
pub(super) struct Fresh {
    /// The metadata.
    pub(super) meta: EntryMeta,
    /// The value.
    pub(super) sealed: SealedValue,
}

/// New content of a row.
#[derive(Debug)]
pub(super) enum Next {
    /// What is stored there, if anything is.
    Same,
    /// Nothing.
    Nothing,
    /// Something else.
    Fresh(Box<Fresh>),
}

/// Row of a transaction: stored and new content.
#[derive(Debug)]
pub(super) struct ChangedRow {
    /// The stored content.
    pub(super) stored: Option<DriverStore>,
    /// The new content.
    pub(super) next: Next,
}

/// Resolved put, before sealing.
#[derive(Debug)]
pub(super) struct Settled {
    /// Where.
    pub(super) place: RowKey,
    /// The metadata.
    pub(super) meta: EntryMeta,
    /// Whether no live row was there.
    pub(super) is_new: bool,
    /// The rows and bytes by which the space grows.
    grows: (i64, i64),
}

/// State before a step of a batch.
#[derive(Debug)]
struct Undo {
    place: RowKey,
    next: Next,
    space: Space,
}

/// Plan of a transaction.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The ids of spaces by name.
    pub(super) names: HashMap<(Namespace, Kind), i64>,
    /// The spaces that are locked.
    pub(super) spaces: BTreeMap<i64, Space>,
    /// The rows that were looked at.
    pub(super) slots: HashMap<RowKey, ChangedRow>,
    /// Rows already deleted in the database, for each space and key id.
    pub(super) gone: HashMap<(i64, String), i64>,
    /// Deletes to notify other replicas of.
    pub(super) deletes: Vec<Delete>,
    undo: Vec<Undo>,
    deletes_before: usize,
}

impl Work {
    /// Begins a batch: it can be undone until the next one begins.
    pub(super) fn begin(&mut self) {
        self.undo.clear();
        self.deletes_before = self.deletes.len();
    }

    /// Undoes everything since the last [`Work::begin`].
    pub(super) fn take_back(&mut self) {
        while let Some(Undo { place, next, space }) = self.undo.pop() {
            self.spaces.insert(place.0, space);
            if let Some(slot) = self.slots.get_mut(&place) {
                slot.next = next;
            }
        }
        self.deletes.truncate(self.deletes_before);
    }

    /// Returns the key of a row, `None` if its space does not exist.
    pub(super) fn place(&self, namespace: &Namespace, kind: Kind, key: &str) -> Option<RowKey> {
        Some((*self.names.get(&(namespace.clone(), kind))?, key.to_owned()))
    }

    /// Settles a put; changes nothing yet, and does not ask whether it fits.
    ///
    /// # Errors
    /// `VersionMismatch`, `NotNewer`.
    pub(super) fn resolve(&self, pending: &PendingWrite, batch: &Batch) -> Result<Settled> {
        let put = &pending.put;
        let place = self
            .place(&put.namespace, put.kind, &put.key)
            .ok_or_else(|| StoreError::Corrupt("a space that was locked is gone".to_owned()))?;
        let (cost, live) = match self.slots.get(&place).and_then(ChangedRow::row) {
            None => (None, None),
            Some((existing, expires_at, cost)) => (
                Some(cost),
                expires_at
                    .is_none_or(|end| end > batch.now)
                    .then_some(existing),
            ),
        };
        let meta = pending.resolve(live, batch.now, batch.seal.overhead())?;
        let grows = (
            i64::from(cost.is_none()),
            signed(meta.cost()).saturating_sub(cost.unwrap_or_default()),
        );
        Ok(Settled {
            place,
            meta,
            is_new: live.is_none(),
            grows,
        })
    }

    /// Says how many rows, and how many bytes, a put is over the quota as things are.
    pub(super) fn excess(&self, settled: &Settled, quota: Quota) -> (i64, i64) {
        let (rows, bytes) = self.would_be(settled);
        (
            rows.saturating_sub(signed(quota.rows)).max(0),
            bytes.saturating_sub(signed(quota.bytes)).max(0),
        )
    }

    /// Checks what a space would hold after a put.
    ///
    /// # Errors
    /// `QuotaExceeded`.
    pub(super) fn check(&self, settled: &Settled, quota: Quota) -> Result<()> {
        let (rows, bytes) = self.would_be(settled);
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        quota.check(unsigned(rows), unsigned(bytes))
    }

    fn would_be(&self, settled: &Settled) -> (i64, i64) {
        let (rows, bytes) = self
            .spaces
            .get(&settled.place.0)
            .map_or((0, 0), |space| (space.rows, space.bytes));
        (
            rows.saturating_add(settled.grows.0),
            bytes.saturating_add(settled.grows.1),
        )
    }

    /// Writes a resolved and sealed put.
    pub(super) fn put(&mut self, settled: Settled, sealed: SealedValue) {
        let Settled {
            place, meta, grows, ..
        } = settled;
        self.set(place, Next::Fresh(Box::new(Fresh { meta, sealed })), grows);
    }

    /// Deletes a row; returns whether it existed.
    pub(super) fn delete(&mut self, place: RowKey) -> bool {
        let Some((_, _, cost)) = self.slots.get(&place).and_then(ChangedRow::row) else {
            return false;
        };
        self.set(place, Next::Nothing, (-1, -cost));
        true
    }

    fn set(&mut self, place: RowKey, next: Next, (rows, bytes): (i64, i64)) {
        let Some(space) = self.spaces.get_mut(&place.0) else {
            return;
        };
        let before = *space;
        space.grow(rows, bytes);
        let slot = self.slots.entry(place.clone()).or_insert(ChangedRow {
            stored: None,
            next: Next::Same,
        });
        let next = std::mem::replace(&mut slot.next, next);
        self.undo.push(Undo {
            place,
            next,
            space: before,
        });
    }

    /// Drops the rows: they were written, and the database is the source of truth.
    pub(super) fn written(&mut self) {
        for ((space, _), slot) in self.slots.drain() {
            let ChangedRow { stored, next } = slot;
            if matches!(next, Next::Same) {
                continue;
            }
            if let Some(stored) = stored {
                *self.gone.entry((space, stored.key_id)).or_default() += 1;
            }
            if let Next::Fresh(fresh) = next {
                *self.gone.entry((space, fresh.sealed.key_id)).or_default() -= 1;
            }
        }
        self.undo.clear();
    }

    /// Counts rows already deleted in the database.
    pub(super) fn went(&mut self, space: i64, key_id: String, rows: i64, bytes: i64) {
        // A row whose space is gone was planted; it can still be deleted.
        if let Some(space) = self.spaces.get_mut(&space) {
            space.grow(-rows, -bytes);
        }
        *self.gone.entry((space, key_id)).or_default() += rows;
    }
}

impl Space {
    fn grow(&mut self, rows: i64, bytes: i64) {
        self.rows = self.rows.saturating_add(rows).max(0);
        self.bytes = self.bytes.saturating_add(bytes).max(0);
        self.changed = true;
    }
}

impl ChangedRow {
    /// Returns version and times, expiry, and cost of the row after the transaction.
    fn row(&self) -> Option<(Existing, Option<Timestamp>, i64)> {
        match &self.next {
            Next::Nothing => None,
            Next::Same => self
                .stored
                .as_ref()
                .map(|row| (row.existing, row.expires_at, row.cost)),
            Next::Fresh(fresh) => {
                let meta = &fresh.meta;
                let existing = Existing {
                    version: meta.version,
                    created_at: meta.created_at,
                    updated_at: meta.updated_at,
                };
                Some((existing, meta.expires_at, signed(meta.cost())))
            }
        }
    }
}
