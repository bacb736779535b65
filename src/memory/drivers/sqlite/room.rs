//! Eviction: expired rows go first, then the oldest rows of the largest space.

use std::collections::{BinaryHeap, HashMap, VecDeque};

use helmdeck_core::numbers::signed;

use super::apply::Work;
use super::rows;
use super::usage::Space;
use crate::entry::{EntryMeta, Kind};
use crate::error::Result;
use crate::requests::Batch;

/// How many of a space's oldest rows are looked up at a time.
const LOOK_AHEAD: i64 = 64;

/// The oldest rows of a space, oldest first, looked up a few at a time.
#[derive(Debug, Default)]
struct Oldest {
    waiting: VecDeque<Aged>,
    last: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Copy)]
struct Aged {
    id: i64,
    updated_at: i64,
    cost: i64,
}

impl Oldest {
    fn next(&mut self, work: &Work<'_>, space: i64) -> Result<Option<Aged>> {
        if self.waiting.is_empty() {
            let (at, id) = self.last.unwrap_or((i64::MIN, i64::MIN));
            let mut statement = work.db.prepare_cached(
                "SELECT id, updated_at, cost FROM memory_entries INDEXED BY memory_entries_by_age
                  WHERE space_id = ?1 AND (updated_at, id) > (?2, ?3) ORDER BY updated_at, id LIMIT ?4",
            )?;
            let rows = statement.query_map((space, at, id, LOOK_AHEAD), |row| {
                Ok(Aged { id: row.get(0)?, updated_at: row.get(1)?, cost: rows::cost(row.get_ref(2)?) })
            })?;
            self.waiting = rows.collect::<Result<_, _>>()?;
            self.last = self.waiting.back().map(|row| (row.updated_at, row.id));
        }
        Ok(self.waiting.pop_front())
    }
}

impl Work<'_> {
    /// Makes room for a row in its space, or refuses it.
    ///
    /// Drops expired rows first, then the oldest if the kind makes room. `old` is the row that it replaces, with its
    /// cost.
    pub(super) fn make_room(
        &mut self,
        space: i64,
        meta: &EntryMeta,
        old: Option<(i64, i64)>,
        batch: &Batch,
    ) -> Result<()> {
        let quota = batch.quotas.of(meta.kind);
        // No row is dropped for one that would not fit into an empty space.
        quota.check(1, meta.cost())?;
        let (own, rows, bytes) = match old {
            Some((id, cost)) => (id, 0, signed(meta.cost()) - cost),
            None => (-1, 1, signed(meta.cost())),
        };
        let would_be = |space: Space| {
            let all = |now: i64, more: i64| u64::try_from(now.saturating_add(more)).unwrap_or(0);
            quota.check(all(space.rows, rows), all(space.bytes, bytes))
        };
        if would_be(self.usage.space(self.db, space)?).is_ok() {
            return Ok(());
        }
        self.delete_where(
            "+space_id = ?1 AND expires_at IS NOT NULL AND expires_at <= ?2 AND id <> ?3",
            (space, batch.now.micros(), own),
        )?;
        let mut oldest = Oldest::default();
        loop {
            match would_be(self.usage.space(self.db, space)?) {
                Err(_) if meta.kind.makes_room() => {}
                fits => return fits,
            }
            match oldest.next(self, space)? {
                Some(row) if row.id == own => {}
                Some(row) => _ = self.delete_where("id = ?1", [row.id])?,
                // Nothing else is there, whatever the counters said.
                None => return self.usage.recount(self.db, space),
            }
        }
    }

    /// Deletes the oldest rows of a kind until all its rows take at most `bytes`.
    ///
    /// Each step takes rows of the largest space.
    pub(super) fn evict(&mut self, kind: Kind, bytes: u64, limit: usize) -> Result<u64> {
        let mut shares: BinaryHeap<(i64, i64)> = self.usage.shares(self.db, kind)?.into();
        let mut over =
            shares.iter().fold(0_i64, |sum, share| sum.saturating_add(share.0)).saturating_sub(signed(bytes));
        let mut oldest: HashMap<i64, Oldest> = HashMap::new();
        let mut doomed = Vec::new();
        while over > 0 && doomed.len() < limit {
            let Some((share, space)) = shares.pop() else { break };
            let Some(row) = oldest.entry(space).or_default().next(self, space)? else {
                over -= share;
                continue;
            };
            doomed.push(row.id);
            over -= row.cost.max(0);
            shares.push((share - row.cost.max(0), space));
        }
        if doomed.is_empty() {
            return Ok(0);
        }
        let ids = serde_json::to_string(&doomed).map_err(|error| crate::StoreError::Corrupt(error.to_string()))?;
        self.delete_where("id IN (SELECT value FROM json_each(?1))", [ids])
    }
}
