//! Operations on the rows in the map; each can be undone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use helmdeck_core::Timestamp;

use super::space::Space;
use crate::entry::{EntryMeta, Kind, Namespace};
use crate::error::Result;
use crate::ops::{Delete, Written};
use crate::requests::{Batch, Canary, Existing, PendingOp, PendingWrite, Position, Range};
use crate::sealed::RawRow;

/// State of the driver.
#[derive(Debug, Default)]
pub(super) struct DriverState {
    pub(super) spaces: BTreeMap<(Namespace, Kind), Space>,
    pub(super) canary: Option<Canary>,
    pub(super) generation: u64,
    /// Owner and end of each lock.
    pub(super) locks: HashMap<String, (String, Timestamp)>,
    pub(super) closed: bool,
}

/// Undo log of a batch: replaced rows, newest last.
pub(super) type Undo = Vec<(Namespace, Kind, String, Option<RawRow>)>;

impl DriverState {
    /// Returns live rows by key.
    pub(super) fn live(&self, range: &Range) -> impl DoubleEndedIterator<Item = &RawRow> {
        let now = range.now;
        self.space(range)
            .flat_map(|space| space.range(&range.prefix))
            .filter(move |row| !row.meta.is_expired(now))
    }

    /// Returns live rows after a position, newest first, ties by key.
    pub(super) fn newest(
        &self,
        range: &Range,
        after: Option<&Position>,
    ) -> impl Iterator<Item = &RawRow> {
        self.space(range)
            .flat_map(move |space| space.newest(after))
            .filter(|row| {
                row.meta.key.starts_with(&range.prefix) && !row.meta.is_expired(range.now)
            })
    }

    fn space(&self, range: &Range) -> impl DoubleEndedIterator<Item = &Space> {
        self.spaces
            .get(&(range.namespace.clone(), range.kind))
            .into_iter()
    }

    /// Runs an operation. Replaced rows are added to `undo`, also if it fails.
    pub(super) fn apply(
        &mut self,
        op: &PendingOp,
        batch: &Batch,
        undo: &mut Undo,
    ) -> Result<Written> {
        Ok(match op {
            PendingOp::Put(pending) => Written::Put(Box::new(self.put(pending, batch, undo)?)),
            PendingOp::Delete(delete) => Written::Deleted(self.delete(delete, undo)),
            PendingOp::Evict { kind, bytes, limit } => {
                Written::Deleted(self.evict((*kind, *bytes, *limit), batch, undo))
            }
            PendingOp::Sweep(limit) => {
                Written::Deleted(self.delete_where(undo, *limit, |meta| meta.is_expired(batch.now)))
            }
        })
    }

    /// Undoes a batch.
    pub(super) fn take_back(&mut self, undo: Undo) {
        for (namespace, kind, key, old) in undo.into_iter().rev() {
            let space = self.spaces.entry((namespace, kind)).or_default();
            match old {
                Some(row) => space.insert(row),
                None => space.remove(&key),
            };
        }
    }

    fn put(&mut self, pending: &PendingWrite, batch: &Batch, undo: &mut Undo) -> Result<EntryMeta> {
        let (namespace, kind) = (pending.put.namespace.clone(), pending.put.kind);
        let space = self.spaces.entry((namespace.clone(), kind)).or_default();
        let old = space.get(&pending.put.key).map(|row| &row.meta);
        let existing = old
            .filter(|meta| !meta.is_expired(batch.now))
            .map(|meta| Existing {
                version: meta.version,
                created_at: meta.created_at,
                updated_at: meta.updated_at,
            });
        let meta = pending.resolve(existing, batch.now, batch.seal.overhead())?;
        make_room(space, &meta, batch, undo)?;
        let sealed = pending
            .seal(&meta, existing.is_none(), &*batch.seal)?
            .into_owned();
        let old = space.insert(RawRow {
            meta: meta.clone(),
            sealed,
        });
        undo.push((namespace, kind, meta.key.clone(), old));
        Ok(meta)
    }

    fn delete(&mut self, delete: &Delete, undo: &mut Undo) -> u64 {
        match delete {
            Delete::Key {
                namespace,
                kind,
                key,
            } => match self.spaces.get_mut(&(namespace.clone(), *kind)) {
                Some(space) => u64::from(remove(space, key, undo).is_some()),
                None => 0,
            },
            Delete::Prefix {
                namespace,
                kind,
                prefix,
            } => self.delete_where(undo, usize::MAX, |meta| {
                namespace.as_ref().is_none_or(|n| *n == meta.namespace)
                    && kind.is_none_or(|k| k == meta.kind)
                    && meta.key.starts_with(prefix.as_str())
            }),
            Delete::Tagged { whose, kind, tag } => self.delete_where(undo, usize::MAX, |meta| {
                whose.covers(&meta.namespace) && *kind == meta.kind && meta.tags.contains(tag)
            }),
        }
    }

    fn delete_where(
        &mut self,
        undo: &mut Undo,
        limit: usize,
        doomed: impl Fn(&EntryMeta) -> bool,
    ) -> u64 {
        let mut count = 0;
        for space in self.spaces.values_mut() {
            let found = space
                .rows()
                .filter(|row| doomed(&row.meta))
                .take(limit - count);
            let keys: Vec<String> = found.map(|row| row.meta.key.clone()).collect();
            count += keys
                .iter()
                .filter_map(|key| remove(space, key, undo))
                .count();
        }
        count as u64
    }

    /// Marks cached answers as read.
    pub(super) fn mark_read(&mut self, reads: HashMap<Namespace, HashSet<String>>) {
        for (namespace, keys) in reads {
            if let Some(space) = self.spaces.get_mut(&(namespace, Kind::Cache)) {
                space.mark_read(&keys);
            }
        }
    }

    fn evict(
        &mut self,
        (kind, bytes, limit): (Kind, u64, usize),
        batch: &Batch,
        undo: &mut Undo,
    ) -> u64 {
        self.mark_read(batch.reads.take_all());
        let mut spaces: BinaryHeap<Share<'_>> = self
            .spaces
            .iter_mut()
            .filter(|((_, of), _)| *of == kind)
            .map(|(_, space)| Share(space))
            .collect();
        let mut total: u64 = spaces.iter().map(|share| share.0.bytes()).sum();
        let mut count = 0;
        while total > bytes && count < limit as u64 {
            let Some(mut largest) = spaces.peek_mut() else {
                break;
            };
            let space = &mut *largest.0;
            let Some(key) = next_to_evict(space, kind, None) else {
                break;
            };
            total -= remove(space, &key, undo).unwrap_or_default();
            count += 1;
        }
        count
    }
}

/// A space, ordered by what it takes.
struct Share<'s>(&'s mut Space);

impl PartialEq for Share<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes() == other.0.bytes()
    }
}

impl Eq for Share<'_> {}

impl PartialOrd for Share<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.bytes().cmp(&other.0.bytes())
    }
}

/// Makes room for a row, or refuses it.
///
/// Drops expired rows first, then others if the kind makes room.
fn make_room(space: &mut Space, meta: &EntryMeta, batch: &Batch, undo: &mut Undo) -> Result<()> {
    let quota = batch.quotas.of(meta.kind);
    // Nothing goes for a row that would not fit into an empty space.
    quota.check(1, meta.cost())?;
    let fits = |space: &Space| {
        let old = space.get(&meta.key).map(|row| row.meta.cost());
        let rows = space.len() + u64::from(old.is_none());
        quota.check(rows, space.bytes() - old.unwrap_or(0) + meta.cost())
    };
    if fits(space).is_ok() {
        return Ok(());
    }
    let ended = space
        .rows()
        .filter(|row| row.meta.key != meta.key && row.meta.is_expired(batch.now));
    let ended: Vec<String> = ended.map(|row| row.meta.key.clone()).collect();
    for key in ended {
        remove(space, &key, undo);
    }
    if meta.kind == Kind::Cache {
        space.mark_read(&batch.reads.take(&meta.namespace));
    }
    while meta.kind.makes_room() && fits(space).is_err() {
        let Some(key) = next_to_evict(space, meta.kind, Some(&meta.key)) else {
            break;
        };
        remove(space, &key, undo);
    }
    fits(space)
}

/// Returns the key of the row that is evicted next: a cached answer by [`crate::sieve`], any other
/// row by its age.
fn next_to_evict(space: &mut Space, kind: Kind, own: Option<&str>) -> Option<String> {
    if kind == Kind::Cache {
        return space.next_to_evict(own);
    }
    space
        .newest(None)
        .rev()
        .find(|row| own != Some(&row.meta.key))
        .map(|row| row.meta.key.clone())
}

/// Takes a row out, so that it can be taken back; returns what it took.
fn remove(space: &mut Space, key: &str, undo: &mut Undo) -> Option<u64> {
    let row = space.remove(key)?;
    let cost = row.meta.cost();
    undo.push((
        row.meta.namespace.clone(),
        row.meta.kind,
        row.meta.key.clone(),
        Some(row),
    ));
    Some(cost)
}
