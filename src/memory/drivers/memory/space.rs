//! One key space, a kind within a namespace: its rows by key and by age, and what they take.
//!
//! It keeps the two orders and the sum in step, and decides nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use helmdeck_core::Timestamp;

use crate::requests::{Position, prefix_end};
use crate::sealed::RawRow;

/// The rows of a key space.
#[derive(Debug, Default)]
pub(super) struct Space {
    rows: BTreeMap<Arc<str>, RawRow>,
    /// The order of lists: newest first, ties by key.
    newest: BTreeSet<(Reverse<Timestamp>, Arc<str>)>,
    bytes: u64,
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
        self.rows.range::<str, _>((Bound::Included(prefix), end)).map(|(_, row)| row)
    }

    /// Returns the rows whose key comes after `key`, by key.
    pub(super) fn after(&self, key: &str) -> impl Iterator<Item = &RawRow> {
        self.rows.range::<str, _>((Bound::Excluded(key), Bound::Unbounded)).map(|(_, row)| row)
    }

    /// Returns the rows after a position, newest first, ties by key; from the back, the oldest.
    pub(super) fn newest(&self, after: Option<&Position>) -> impl DoubleEndedIterator<Item = &RawRow> {
        let start = after.map_or(Bound::Unbounded, |position| {
            Bound::Excluded((Reverse(position.updated_at), Arc::from(position.key.as_str())))
        });
        self.newest.range((start, Bound::Unbounded)).filter_map(|(_, key)| self.rows.get(key))
    }

    /// Puts a row in and returns the one that was there.
    pub(super) fn insert(&mut self, row: RawRow) -> Option<RawRow> {
        let old = self.remove(&row.meta.key);
        let key: Arc<str> = row.meta.key.as_str().into();
        self.bytes = self.bytes.saturating_add(row.meta.cost());
        self.newest.insert((Reverse(row.meta.updated_at), Arc::clone(&key)));
        self.rows.insert(key, row);
        old
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, key: &str) -> Option<RawRow> {
        let (key, row) = self.rows.remove_entry(key)?;
        self.bytes = self.bytes.saturating_sub(row.meta.cost());
        self.newest.remove(&(Reverse(row.meta.updated_at), key));
        Some(row)
    }

    /// Puts another sealed value in the place of a row's.
    pub(super) fn reseal(&mut self, key: &str, sealed: crate::sealed::SealedValue) {
        if let Some(row) = self.rows.get_mut(key) {
            row.sealed = sealed;
        }
    }
}
