//! One key space, a kind within a namespace: its rows by key and by age, and what they take.
//!
//! It keeps the two orders and the sum in step, and the hand of evictions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use helmdeck_core::Timestamp;
use helmdeck_core::numbers::signed;

use crate::requests::{Position, prefix_end};
use crate::sealed::RawRow;
use crate::sieve::{Candidate, LOOKS, NEIGHBOURS, READ, Verdict, cost_of, judge};

/// The rows of a key space.
#[derive(Debug, Default)]
pub(super) struct Space {
    rows: BTreeMap<Arc<str>, RawRow>,
    /// The order of lists: newest first, ties by key.
    newest: BTreeSet<(Reverse<Timestamp>, Arc<str>)>,
    bytes: u64,
    hand: Hand,
    /// Round until which the hand spares a row.
    spared: HashMap<Arc<str>, i64>,
}

/// Hand of an eviction: the last row that it visited, and its round.
#[derive(Debug, Default)]
struct Hand {
    at: Option<(Reverse<Timestamp>, Arc<str>)>,
    round: i64,
}

impl Space {
    /// Returns how many rows there are.
    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the size of the rows in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a row.
    pub(super) fn get(&self, key: &str) -> Option<&RawRow> {
        self.rows.get(key)
    }

    /// Returns every row, by key.
    pub(super) fn rows(&self) -> impl Iterator<Item = &RawRow> {
        self.rows.values()
    }

    /// Returns the rows whose key starts with `prefix`, by key.
    pub(super) fn range(&self, prefix: &str) -> impl DoubleEndedIterator<Item = &RawRow> {
        let end = prefix_end(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.rows
            .range::<str, _>((Bound::Included(prefix), end))
            .map(|(_, row)| row)
    }

    /// Returns the rows whose key comes after `key`, by key.
    pub(super) fn after(&self, key: &str) -> impl Iterator<Item = &RawRow> {
        self.rows
            .range::<str, _>((Bound::Excluded(key), Bound::Unbounded))
            .map(|(_, row)| row)
    }

    /// Returns the rows after a position, newest first, ties by key; from the back, the oldest.
    pub(super) fn newest(
        &self,
        after: Option<&Position>,
    ) -> impl DoubleEndedIterator<Item = &RawRow> {
        let start = after.map_or(Bound::Unbounded, |position| {
            Bound::Excluded((
                Reverse(position.updated_at),
                Arc::from(position.key.as_str()),
            ))
        });
        self.newest
            .range((start, Bound::Unbounded))
            .filter_map(|(_, key)| self.rows.get(key))
    }

    /// Puts a row in and returns the one that was there.
    pub(super) fn insert(&mut self, row: RawRow) -> Option<RawRow> {
        let old = self.remove(&row.meta.key);
        let key: Arc<str> = row.meta.key.as_str().into();
        self.bytes = self.bytes.saturating_add(row.meta.cost());
        self.newest
            .insert((Reverse(row.meta.updated_at), Arc::clone(&key)));
        self.rows.insert(key, row);
        old
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, key: &str) -> Option<RawRow> {
        let (key, row) = self.rows.remove_entry(key)?;
        self.bytes = self.bytes.saturating_sub(row.meta.cost());
        self.spared.remove(&key);
        self.newest.remove(&(Reverse(row.meta.updated_at), key));
        Some(row)
    }

    /// Marks rows as read.
    pub(super) fn mark_read(&mut self, keys: &HashSet<String>) {
        for (key, _) in keys
            .iter()
            .filter_map(|key| self.rows.get_key_value(key.as_str()))
        {
            self.spared.insert(Arc::clone(key), READ);
        }
    }

    /// Moves the hand to the next row to evict, `None` if there is none but `own`.
    pub(super) fn next_to_evict(&mut self, own: Option<&str>) -> Option<String> {
        let mut rounds = 0;
        for looks in 0.. {
            let end = self
                .hand
                .at
                .clone()
                .map_or(Bound::Unbounded, Bound::Excluded);
            let neighbours: Vec<_> = self
                .newest
                .range((Bound::Unbounded, end))
                .rev()
                .take(NEIGHBOURS)
                .cloned()
                .collect();
            if neighbours.is_empty() {
                // In the second round after this one, a row is left that no neighbour's cost
                // outdoes.
                if rounds > 2 {
                    break;
                }
                (self.hand.at, self.hand.round) = (None, self.hand.round + 1);
                rounds += 1;
            }
            let candidates: Vec<_> = neighbours
                .iter()
                .map(|(_, key)| self.candidate(key))
                .collect();
            for (place, verdict) in neighbours
                .into_iter()
                .zip(judge(&candidates, self.hand.round))
            {
                let key = Arc::clone(&place.1);
                self.hand.at = Some(place);
                match verdict {
                    _ if own == Some(&*key) => {}
                    Verdict::Evict => return Some(key.to_string()),
                    _ if looks > LOOKS => return Some(key.to_string()),
                    Verdict::Spare => {}
                    Verdict::SpareUntil(round) => _ = self.spared.insert(key, round),
                }
            }
        }
        None
    }

    fn candidate(&self, key: &str) -> Candidate {
        let meta = self.rows.get(key).map(|row| &row.meta);
        Candidate {
            spared_until: self.spared.get(key).copied(),
            bytes: meta.map_or(0, |meta| signed(meta.cost())),
            cost_us: meta.map_or(0, |meta| cost_of(&meta.attributes)),
        }
    }

    /// Puts another sealed value in the place of a row's.
    pub(super) fn reseal(&mut self, key: &str, sealed: crate::sealed::SealedValue) {
        if let Some(row) = self.rows.get_mut(key) {
            row.sealed = sealed;
        }
    }
}
