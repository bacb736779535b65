//! Rows in a map behind a mutex: for tests, and for `memory:`. Nothing survives the process; nothing here waits.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use helmdeck_core::Timestamp;

use crate::driver::{Batch, Canary, Draft, DraftOp, Driver, Existing, Position, Range, page_of, prefix_end};
use crate::entry::{Entry, EntryMeta, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::sealed::{RawRow, Seal};
use crate::store::{Delete, ListPage, Mark, NamespaceStats, Order, Resealed, Scan, Stats, Walk, Written};

/// The driver.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    spaces: BTreeMap<(Namespace, Kind), Space>,
    canary: Option<Canary>,
    generation: u64,
    closed: bool,
}

/// One key space: a kind within a namespace.
#[derive(Debug, Default)]
struct Space {
    rows: BTreeMap<String, RawRow>,
    bytes: u64,
}

/// What a batch replaced, newest last, so that it can be taken back.
type Undo = Vec<(Namespace, Kind, String, Option<RawRow>)>;

impl Memory {
    /// Makes an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed { Err(StoreError::Closed) } else { Ok(state) }
    }
}

impl State {
    fn live(&self, range: &Range) -> impl DoubleEndedIterator<Item = &RawRow> {
        let bounds = bounds(&range.prefix);
        let space = self.spaces.get(&(range.namespace.clone(), range.kind));
        let now = range.now;
        space
            .into_iter()
            .flat_map(move |space| space.rows.range(bounds.clone()))
            .filter_map(move |(_, row)| if row.meta.is_expired(now) { None } else { Some(row) })
    }

    fn put(&mut self, draft: &Draft, batch: &Batch, undo: &mut Undo) -> Result<EntryMeta> {
        let (namespace, kind) = (draft.put.namespace.clone(), draft.put.kind);
        let space = self.spaces.entry((namespace.clone(), kind)).or_default();
        let old = space.rows.get(&draft.put.key);
        let live = old.filter(|row| !row.meta.is_expired(batch.now));
        let existing = live.map(|row| Existing {
            version: row.meta.version,
            created_at: row.meta.created_at,
            updated_at: row.meta.updated_at,
        });
        let meta = draft.settle(existing, batch.now, batch.seal.overhead())?;
        let old_size = old.map_or(0, |row| row.meta.size);
        let within = |space: &Space, old: bool| {
            let rows = space.rows.len() as u64 + u64::from(!old);
            batch.quotas.of(kind).check(rows, space.bytes - old_size + meta.size)
        };
        let is_old = old.is_some();
        if let Err(full) = within(space, is_old) {
            // What has ended must not keep out what is new.
            let ended: Vec<String> = space
                .rows
                .iter()
                .filter(|(key, row)| **key != meta.key && row.meta.is_expired(batch.now))
                .map(|(key, _)| key.clone())
                .collect();
            for key in ended {
                space.remove(&namespace, kind, &key, undo);
            }
            within(space, is_old).map_err(|_| full)?;
        }
        let sealed = draft.seal(&meta, existing.is_none(), &*batch.seal)?.into_owned();
        space.bytes = space.bytes - old_size + meta.size;
        let old = space.rows.insert(meta.key.clone(), RawRow { meta: meta.clone(), sealed });
        undo.push((namespace, kind, meta.key.clone(), old));
        Ok(meta)
    }

    fn delete_where(&mut self, undo: &mut Undo, limit: usize, doomed: impl Fn(&EntryMeta) -> bool) -> u64 {
        let mut count = 0;
        for ((namespace, kind), space) in &mut self.spaces {
            let keys: Vec<String> = space
                .rows
                .iter()
                .filter(|(_, row)| doomed(&row.meta))
                .map(|(key, _)| key.clone())
                .take(limit - count)
                .collect();
            count += keys.len();
            for key in keys {
                space.remove(namespace, *kind, &key, undo);
            }
        }
        count as u64
    }

    fn delete(&mut self, delete: &Delete, undo: &mut Undo) -> u64 {
        match delete {
            Delete::Key { namespace, kind, key } => match self.spaces.get_mut(&(namespace.clone(), *kind)) {
                Some(space) => u64::from(space.remove(namespace, *kind, key, undo)),
                None => 0,
            },
            Delete::Prefix { namespace, kind, prefix } => self.delete_where(undo, usize::MAX, |meta| {
                namespace.as_ref().is_none_or(|n| *n == meta.namespace)
                    && kind.is_none_or(|k| k == meta.kind)
                    && meta.key.starts_with(prefix.as_str())
            }),
            Delete::Tagged { namespace, kind, tag } => self.delete_where(undo, usize::MAX, |meta| {
                namespace.as_ref().is_none_or(|n| *n == meta.namespace) && *kind == meta.kind && meta.tags.contains(tag)
            }),
        }
    }

    fn apply(&mut self, op: &DraftOp, batch: &Batch, undo: &mut Undo) -> Result<Written> {
        match op {
            DraftOp::Put(draft) => Ok(Written::Put(Box::new(self.put(draft, batch, undo)?))),
            DraftOp::Delete(delete) => Ok(Written::Deleted(self.delete(delete, undo))),
            DraftOp::Evict { .. } => Ok(Written::Deleted(0)),
            DraftOp::Sweep(limit) => {
                Ok(Written::Deleted(self.delete_where(undo, *limit, |meta| meta.is_expired(batch.now))))
            }
        }
    }

    fn take_back(&mut self, undo: Undo) {
        for (namespace, kind, key, old) in undo.into_iter().rev() {
            let space = self.spaces.entry((namespace, kind)).or_default();
            let size = old.as_ref().map_or(0, |row| row.meta.size);
            let gone = match old {
                Some(row) => space.rows.insert(key, row),
                None => space.rows.remove(&key),
            };
            space.bytes = space.bytes + size - gone.map_or(0, |row| row.meta.size);
        }
    }
}

impl Space {
    fn remove(&mut self, namespace: &Namespace, kind: Kind, key: &str, undo: &mut Undo) -> bool {
        let Some((key, row)) = self.rows.remove_entry(key) else { return false };
        self.bytes -= row.meta.size;
        undo.push((namespace.clone(), kind, key, Some(row)));
        true
    }
}

fn bounds(prefix: &str) -> (Bound<String>, Bound<String>) {
    (Bound::Included(prefix.to_owned()), prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded))
}

#[async_trait]
impl Driver for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn canary(&self, fresh: Canary) -> Result<Canary> {
        Ok(self.open()?.canary.get_or_insert(fresh).clone())
    }

    async fn get(
        &self,
        namespace: &Namespace,
        kind: Kind,
        key: &str,
        now: Timestamp,
        seal: &Arc<dyn Seal>,
    ) -> Result<Option<Entry>> {
        let row = self.open()?.spaces.get(&(namespace.clone(), kind)).and_then(|space| space.rows.get(key)).cloned();
        row.filter(|row| !row.meta.is_expired(now)).map(|row| seal.open(row)).transpose()
    }

    async fn list(&self, range: Range, after: Option<Position>, limit: usize) -> Result<ListPage> {
        let mut found: Vec<EntryMeta> = {
            let state = self.open()?;
            let is_after = |meta: &EntryMeta| {
                after.as_ref().is_none_or(|position| {
                    meta.updated_at < position.updated_at
                        || (meta.updated_at == position.updated_at && meta.key > position.key)
                })
            };
            state.live(&range).filter(|row| is_after(&row.meta)).map(|row| row.meta.clone()).collect()
        };
        found.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.key.cmp(&b.key)));
        found.truncate(limit.saturating_add(1));
        Ok(page_of(found, limit))
    }

    async fn scan(&self, range: Range, order: Order, limit: usize, seal: &Arc<dyn Seal>) -> Result<Scan> {
        let mut scan = Scan::default();
        let state = self.open()?;
        let rows: &mut dyn Iterator<Item = &RawRow> = match order {
            Order::KeyAscending => &mut state.live(&range),
            Order::KeyDescending | Order::NewestFirst => &mut state.live(&range).rev(),
        };
        for row in rows {
            if scan.entries.len() >= limit {
                break;
            }
            match seal.open(row.clone()) {
                Ok(entry) => scan.entries.push(entry),
                Err(_) => scan.unreadable += 1,
            }
        }
        Ok(scan)
    }

    async fn namespaces(&self, now: Timestamp) -> Result<Vec<NamespaceStats>> {
        let state = self.open()?;
        let mut all: HashMap<(&Namespace, Kind), NamespaceStats> = HashMap::new();
        for ((namespace, kind), space) in &state.spaces {
            for row in space.rows.values().filter(|row| !row.meta.is_expired(now)) {
                let stats = all.entry((namespace, *kind)).or_insert_with(|| NamespaceStats {
                    namespace: namespace.clone(),
                    kind: *kind,
                    rows: 0,
                    bytes: 0,
                });
                stats.rows += 1;
                stats.bytes += row.meta.size;
            }
        }
        Ok(all.into_values().collect())
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        let state = self.open()?;
        let mut stats = Stats { driver: self.name(), ..Stats::default() };
        for row in state.spaces.values().flat_map(|space| space.rows.values()) {
            stats.bytes += row.meta.size;
            if row.meta.is_expired(now) {
                stats.expired += 1;
                continue;
            }
            stats.rows += 1;
            *stats.rows_by_key_id.entry(row.sealed.key_id.clone()).or_default() += 1;
            *stats.rows_by_kind.entry(row.meta.kind.as_str().to_owned()).or_default() += 1;
        }
        Ok(stats)
    }

    async fn generation(&self) -> Result<u64> {
        Ok(self.open()?.generation)
    }

    async fn write(&self, batch: Batch) -> Result<Vec<Written>> {
        let mut state = self.open()?;
        let mut undo = Undo::new();
        let mut done = Vec::with_capacity(batch.ops.len());
        for op in &batch.ops {
            match state.apply(op, &batch, &mut undo) {
                Ok(written) => done.push(written),
                Err(error) => {
                    state.take_back(undo);
                    return Err(error);
                }
            }
        }
        if batch.ops.iter().any(|op| matches!(op, DraftOp::Delete(_))) {
            state.generation += 1;
        }
        state.spaces.retain(|_, space| !space.rows.is_empty());
        Ok(done)
    }

    async fn walk(&self, _: Option<Mark>, _: usize, _: &Arc<dyn Seal>) -> Result<Walk> {
        Err(StoreError::Invalid("not written yet"))
    }

    async fn reseal(&self, _: Option<Mark>, _: usize, _: &str, _: &Arc<dyn Seal>) -> Result<Resealed> {
        Err(StoreError::Invalid("not written yet"))
    }

    async fn replace_canary(&self, _: Canary) -> Result<()> {
        Err(StoreError::Invalid("not written yet"))
    }

    async fn try_lock(&self, _: &str, _: &str, _: Timestamp, _: Timestamp) -> Result<bool> {
        Err(StoreError::Invalid("not written yet"))
    }

    async fn unlock(&self, _: &str, _: &str) -> Result<()> {
        Err(StoreError::Invalid("not written yet"))
    }

    async fn close(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State { closed: true, ..State::default() };
        Ok(())
    }
}
