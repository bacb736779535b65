//! Eviction: expired rows go first, then rows of the largest space, cached answers as
//! [`crate::sieve`] chooses them.

use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

use helmdeck_core::numbers::signed;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::apply::Work;
use super::rows;
use super::usage::{Space, Usage};
use crate::entry::{EntryMeta, Kind, Namespace};
use crate::error::Result;
use crate::requests::Batch;
use crate::sieve::{Candidate, LOOKS, NEIGHBOURS, READ, Reads, Verdict, judge};

/// Before every row.
const START: (i64, i64) = (i64::MIN, i64::MIN);

/// Hand of an eviction: goes over the rows of a space, from the oldest to the newest.
#[derive(Debug)]
struct Hand {
    space: i64,
    /// Whether it spares rows and stays where it is for the next eviction; else it takes the oldest
    /// rows.
    spares: bool,
    /// Time and id of the last row that it visited.
    at: (i64, i64),
    round: i64,
    waiting: VecDeque<(Row, Verdict)>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    id: i64,
    updated_at: i64,
    bytes: i64,
}

impl Hand {
    /// Takes up the hand of a space. First writes down which of its rows this process read.
    fn of(db: &Connection, space: i64, kind: Kind, reads: &Reads) -> Result<Self> {
        let spares = kind == Kind::Cache;
        let mut hand = Self {
            space,
            spares,
            at: START,
            round: 0,
            waiting: VecDeque::new(),
        };
        if spares {
            let mut named = db.prepare_cached(
                "SELECT tenant, subject, session FROM memory_spaces WHERE id = ?1",
            )?;
            let name = named.query_row([space], |row| {
                let session = row.get_ref(2)?;
                let session = (session != ValueRef::Null).then(|| rows::text(session));
                let (tenant, subject) = (rows::text(row.get_ref(0)?), rows::text(row.get_ref(1)?));
                Ok(Namespace::new(&tenant, &subject, session.as_deref()))
            });
            if let Some(name) = name.optional()? {
                mark(db, space, &reads.take(&name))?;
            }
            let mut stored = db.prepare_cached(
                "SELECT updated_at, entry_id, round FROM memory_hands WHERE space_id = ?1",
            )?;
            let found = stored
                .query_row([space], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))
                .optional()?;
            (hand.at, hand.round) = found.unwrap_or((START, 0));
        }
        Ok(hand)
    }

    /// Returns the next row to evict, `None` if there is none but those of `but`.
    fn next(&mut self, db: &Connection, but: impl Fn(i64) -> bool) -> Result<Option<Row>> {
        let (mut looks, mut rounds) = (0, 0);
        loop {
            while let Some((row, verdict)) = self.waiting.pop_front() {
                self.at = (row.updated_at, row.id);
                match verdict {
                    _ if but(row.id) => {}
                    Verdict::Evict => return Ok(Some(row)),
                    _ if looks > LOOKS => return Ok(Some(row)),
                    Verdict::Spare => {}
                    Verdict::SpareUntil(round) => spare(db, row.id, round)?,
                }
            }
            self.waiting = self.neighbours(db)?;
            looks += 1;
            if self.waiting.is_empty() {
                // In the second round after this one, a row is left that no neighbour's cost
                // outdoes.
                if rounds > 2 {
                    return Ok(None);
                }
                (self.at, self.round) = (START, self.round + 1);
                rounds += 1;
            }
        }
    }

    fn neighbours(&self, db: &Connection) -> Result<VecDeque<(Row, Verdict)>> {
        let mut statement = db.prepare_cached(
            "SELECT e.id, e.updated_at, e.cost, e.attributes, s.until
               FROM memory_entries e INDEXED BY memory_entries_by_age LEFT JOIN memory_spared s ON s.entry_id = e.id
              WHERE e.space_id = ?1 AND (e.updated_at, e.id) > (?2, ?3) ORDER BY e.updated_at, e.id LIMIT ?4",
        )?;
        let params = (self.space, self.at.0, self.at.1, signed(NEIGHBOURS as u64));
        let found = statement.query_map(params, |row| {
            let (bytes, cost_us) = (rows::cost(row.get_ref(2)?), rows::cost_us(row.get_ref(3)?));
            let candidate = Candidate {
                spared_until: row.get(4)?,
                bytes,
                cost_us,
            };
            Ok((
                Row {
                    id: row.get(0)?,
                    updated_at: row.get(1)?,
                    bytes,
                },
                candidate,
            ))
        })?;
        let (rows, candidates): (Vec<_>, Vec<_>) =
            found.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let verdicts = if self.spares {
            judge(&candidates, self.round)
        } else {
            vec![Verdict::Evict; candidates.len()]
        };
        Ok(rows.into_iter().zip(verdicts).collect())
    }

    /// Writes down where the hand is.
    fn put_down(&self, db: &Connection) -> Result<()> {
        if self.spares {
            db.prepare_cached(
                "INSERT INTO memory_hands (space_id, updated_at, entry_id, round) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (space_id) DO UPDATE
                    SET updated_at = excluded.updated_at, entry_id = excluded.entry_id, round = excluded.round",
            )?
            .execute((self.space, self.at.0, self.at.1, self.round))?;
        }
        Ok(())
    }
}

fn spare(db: &Connection, id: i64, until: i64) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO memory_spared (entry_id, until) VALUES (?1, ?2)
         ON CONFLICT (entry_id) DO UPDATE SET until = excluded.until WHERE until <> excluded.until",
    )?
    .execute((id, until))?;
    Ok(())
}

/// Marks rows of a space as read.
fn mark(db: &Connection, space: i64, keys: &HashSet<String>) -> Result<()> {
    let mut find =
        db.prepare_cached("SELECT id FROM memory_entries WHERE space_id = ?1 AND key = ?2")?;
    for key in keys {
        if let Some(id) = find.query_row((space, key), |row| row.get(0)).optional()? {
            spare(db, id, READ)?;
        }
    }
    Ok(())
}

/// Marks cached answers as read in a transaction of its own, in spaces from which rows were evicted
/// before.
pub(super) fn mark_read(
    db: &mut Connection,
    reads: &HashMap<Namespace, HashSet<String>>,
) -> Result<()> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut usage = Usage::default();
    for (namespace, keys) in reads {
        if let Some(space) = usage.find(&transaction, namespace, Kind::Cache)?
            && transaction
                .prepare_cached("SELECT 1 FROM memory_hands WHERE space_id = ?1")?
                .exists([space])?
        {
            mark(&transaction, space, keys)?;
        }
    }
    Ok(transaction.commit()?)
}

impl Work<'_> {
    /// Makes room for a row in its space, or refuses it.
    ///
    /// Drops expired rows first, then others if the kind makes room. `old` is the row that it
    /// replaces, with what that takes.
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
        if would_be(self.usage.space(self.db, space)?).is_ok() || !meta.kind.makes_room() {
            return would_be(self.usage.space(self.db, space)?);
        }
        let mut hand = Hand::of(self.db, space, meta.kind, &batch.reads)?;
        while would_be(self.usage.space(self.db, space)?).is_err() {
            match hand.next(self.db, |id| id == own)? {
                Some(row) => _ = self.delete_where("id = ?1", [row.id])?,
                // Nothing else is there, whatever the counters said.
                None => return self.usage.recount(self.db, space),
            }
        }
        hand.put_down(self.db)
    }

    /// Evicts rows of a kind until all its rows take at most `bytes`.
    ///
    /// Each step takes a row of the largest space.
    pub(super) fn evict(
        &mut self,
        kind: Kind,
        bytes: u64,
        limit: usize,
        reads: &Reads,
    ) -> Result<u64> {
        let mut shares: BinaryHeap<(i64, i64)> = self.usage.shares(self.db, kind)?.into();
        let mut over = shares
            .iter()
            .fold(0_i64, |sum, share| sum.saturating_add(share.0))
            .saturating_sub(signed(bytes));
        let mut hands: HashMap<i64, Hand> = HashMap::new();
        let mut doomed = HashSet::new();
        while over > 0 && doomed.len() < limit {
            let Some((share, space)) = shares.pop() else {
                break;
            };
            let hand = match hands.entry(space) {
                Entry::Occupied(hand) => hand.into_mut(),
                Entry::Vacant(slot) => slot.insert(Hand::of(self.db, space, kind, reads)?),
            };
            let Some(row) = hand.next(self.db, |id| doomed.contains(&id))? else {
                over -= share;
                continue;
            };
            doomed.insert(row.id);
            over -= row.bytes.max(0);
            shares.push((share - row.bytes.max(0), space));
        }
        if doomed.is_empty() {
            return Ok(0);
        }
        for hand in hands.values() {
            hand.put_down(self.db)?;
        }
        let ids = serde_json::to_string(&doomed)
            .map_err(|error| crate::StoreError::Corrupt(error.to_string()))?;
        self.delete_where("id IN (SELECT value FROM json_each(?1))", [ids])
    }
}
