//! In-memory driver: rows in a map behind a mutex, for tests and for `memory:`.
//!
//! Nothing survives the process, and no call waits.

mod space;
mod state;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::Timestamp;

use self::space::Space;
use self::state::{DriverState, Undo};
use crate::driver::Driver;
use crate::entry::{Entry, EntryMeta, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::ops::{ListPage, Mark, NamespaceStats, Order, Resealed, Scan, Stats, Walk, Written};
use crate::requests::{
    Batch, Canary, NamespaceOwner, PendingOp, Position, Range, WALK_BYTES, page_of,
};
use crate::sealed::{RawRow, Seal};

/// In-memory driver. Clones share the rows.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    state: Arc<Mutex<DriverState>>,
}

/// The name of a row, as a mark tells it: tenant, subject, session, kind and key.
type Name = (String, String, Option<String>, Kind, String);

impl Memory {
    /// Makes an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn open(&self) -> Result<MutexGuard<'_, DriverState>> {
        let state = self.state.lock();
        if state.closed {
            Err(StoreError::Closed)
        } else {
            Ok(state)
        }
    }
}

impl DriverState {
    /// Returns copies of the rows after a mark, up to a limit, and the next mark if there may be
    /// more.
    fn part(&self, after: Option<&Mark>, limit: usize) -> Result<(Vec<RawRow>, Option<Mark>)> {
        let system_namespace = StoreError::Invalid("the mark was not made by this store");
        let name: Option<Name> = after
            .map(|mark| serde_json::from_str(&mark.0))
            .transpose()
            .map_err(|_| system_namespace)?;
        let (start, key) = match &name {
            Some((tenant, subject, session, kind, key)) => (
                Bound::Included((Namespace::new(tenant, subject, session.as_deref()), *kind)),
                key.as_str(),
            ),
            // No key is empty, so all come after it.
            None => (Bound::Unbounded, ""),
        };
        let first = if let Bound::Included(first) = &start {
            Some(first.clone())
        } else {
            None
        };
        let rows = self
            .spaces
            .range((start, Bound::Unbounded))
            .flat_map(|(space, rows)| {
                rows.after(if Some(space) == first.as_ref() {
                    key
                } else {
                    ""
                })
            });
        let (mut part, mut bytes) = (Vec::new(), 0);
        for row in rows {
            if part.len() >= limit || bytes >= WALK_BYTES {
                let mark = part
                    .last()
                    .map(|row: &RawRow| mark_of(&row.meta))
                    .transpose()?;
                return Ok((part, mark));
            }
            bytes += row.sealed.value.len();
            part.push(row.clone());
        }
        Ok((part, None))
    }
}

fn mark_of(meta: &EntryMeta) -> Result<Mark> {
    let Namespace {
        tenant,
        subject,
        session,
    } = &meta.namespace;
    let text = serde_json::to_string(&(
        &**tenant,
        &**subject,
        session.as_deref(),
        meta.kind,
        &meta.key,
    ));
    text.map(Mark)
        .map_err(|error| StoreError::Corrupt(error.to_string()))
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
        let row = self
            .open()?
            .spaces
            .get(&(namespace.clone(), kind))
            .and_then(|space| space.get(key))
            .cloned();
        row.filter(|row| !row.meta.is_expired(now))
            .map(|row| seal.open(row))
            .transpose()
    }

    async fn list(&self, range: Range, after: Option<Position>, limit: usize) -> Result<ListPage> {
        let state = self.open()?;
        let found = state
            .newest(&range, after.as_ref())
            .map(|row| row.meta.clone());
        let found = found.take(limit.saturating_add(1)).collect();
        Ok(page_of(found, limit))
    }

    async fn scan(
        &self,
        range: Range,
        order: Order,
        limit: usize,
        seal: &Arc<dyn Seal>,
    ) -> Result<Scan> {
        let mut scan = Scan::default();
        let state = self.open()?;
        let rows: &mut dyn Iterator<Item = &RawRow> = match order {
            Order::KeyAscending => &mut state.live(&range),
            Order::KeyDescending => &mut state.live(&range).rev(),
            Order::NewestFirst => &mut state.newest(&range, None),
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

    async fn namespaces(
        &self,
        of: Option<NamespaceOwner>,
        now: Timestamp,
    ) -> Result<Vec<NamespaceStats>> {
        let state = self.open()?;
        let mut all: HashMap<(&Namespace, Kind), NamespaceStats> = HashMap::new();
        let is_wanted = |namespace: &Namespace| {
            of.as_ref().is_none_or(|of| {
                *namespace.tenant == *of.tenant && *namespace.subject == *of.subject
            })
        };
        for ((namespace, kind), space) in state
            .spaces
            .iter()
            .filter(|((namespace, _), _)| is_wanted(namespace))
        {
            for row in space.rows().filter(|row| !row.meta.is_expired(now)) {
                let stats = all
                    .entry((namespace, *kind))
                    .or_insert_with(|| NamespaceStats {
                        namespace: namespace.clone(),
                        kind: *kind,
                        rows: 0,
                        bytes: 0,
                    });
                stats.rows += 1;
                stats.bytes += row.meta.cost();
            }
        }
        Ok(all.into_values().collect())
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        let state = self.open()?;
        let mut stats = Stats {
            driver: self.name(),
            ..Stats::default()
        };
        for row in state.spaces.values().flat_map(Space::rows) {
            stats.bytes += row.meta.cost();
            if row.meta.is_expired(now) {
                stats.expired += 1;
                continue;
            }
            stats.rows += 1;
            *stats
                .rows_by_key_id
                .entry(row.sealed.key_id.clone())
                .or_default() += 1;
            *stats
                .rows_by_kind
                .entry(row.meta.kind.as_str().to_owned())
                .or_default() += 1;
            *stats
                .bytes_by_kind
                .entry(row.meta.kind.as_str().to_owned())
                .or_default() += row.meta.cost();
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
        if batch
            .ops
            .iter()
            .any(|op| matches!(op, PendingOp::Delete(_)))
        {
            state.generation += 1;
        }
        state.spaces.retain(|_, space| space.len() > 0);
        Ok(done)
    }

    async fn walk(&self, after: Option<Mark>, limit: usize, seal: &Arc<dyn Seal>) -> Result<Walk> {
        let (rows, next) = self.open()?.part(after.as_ref(), limit)?;
        let rows = rows.into_iter().map(|row| row.walk(&**seal)).collect();
        Ok(Walk { rows, next })
    }

    async fn reseal(
        &self,
        after: Option<Mark>,
        limit: usize,
        current: &str,
        seal: &Arc<dyn Seal>,
    ) -> Result<Resealed> {
        let mut state = self.open()?;
        let (rows, next) = state.part(after.as_ref(), limit)?;
        let (mut fresh, mut unreadable) = (Vec::new(), 0);
        for row in rows.into_iter().filter(|row| row.sealed.key_id != current) {
            match seal.open(row) {
                // All are sealed before the first is changed: all of a step or nothing.
                Ok(entry) => fresh.push((seal.seal(&entry.meta, &entry.value)?, entry.meta)),
                Err(_) => unreadable += 1,
            }
        }
        let count = fresh.len() as u64;
        for (sealed, meta) in fresh {
            if let Some(space) = state.spaces.get_mut(&(meta.namespace, meta.kind)) {
                space.reseal(&meta.key, sealed);
            }
        }
        Ok(Resealed {
            rows: count,
            unreadable,
            next,
        })
    }

    async fn mark_read(&self, reads: HashMap<Namespace, HashSet<String>>) -> Result<()> {
        self.open()?.mark_read(reads);
        Ok(())
    }

    async fn replace_canary(&self, canary: Canary) -> Result<()> {
        self.open()?.canary = Some(canary);
        Ok(())
    }

    async fn adopt_if_empty(&self, canary: Canary, now: Timestamp) -> Result<bool> {
        let empty = self.stats(now).await?.rows == 0;
        if empty {
            self.open()?.canary = Some(canary);
        }
        Ok(empty)
    }

    async fn try_lock(
        &self,
        name: &str,
        owner: &str,
        now: Timestamp,
        hold: Duration,
    ) -> Result<bool> {
        let mut state = self.open()?;
        let taken = state
            .locks
            .get(name)
            .is_none_or(|(holder, end)| holder == owner || *end <= now);
        if taken {
            state.locks.retain(|_, (_, end)| *end > now);
            state.locks.insert(
                name.to_owned(),
                (owner.to_owned(), now.saturating_add(hold)),
            );
        }
        Ok(taken)
    }

    async fn unlock(&self, name: &str, owner: &str) -> Result<()> {
        let mut state = self.open()?;
        if state
            .locks
            .get(name)
            .is_some_and(|(holder, _)| holder == owner)
        {
            state.locks.remove(name);
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        *state = DriverState {
            closed: true,
            ..DriverState::default()
        };
        Ok(())
    }
}
