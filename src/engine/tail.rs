//! Bounded tail of what happened last, for readers that follow it.
//!
//! Writers append and go on; a reader that is too slow misses the oldest entries and is told how
//! many. Without a reader an append costs one lock and a copy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Identity, PackName, RequestId, Timestamp, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

/// One of the newest calls of this process, of any caller.
#[derive(Debug, Clone)]
pub struct CallRecord {
    /// When it ended.
    pub at: Timestamp,
    /// The caller.
    pub identity: Arc<Identity>,
    /// The pack.
    pub pack: PackName,
    /// Its version.
    pub version: Version,
    /// `ok` or an error code.
    pub outcome: &'static str,
    /// Cache status of the call, if both gates were open.
    pub cache: Option<&'static str>,
    /// How long it took.
    pub duration: Duration,
    /// Request id, if the caller sent one or the call failed.
    pub request_id: Option<RequestId>,
}

/// The newest entries, numbered from 1 without gaps.
#[derive(Debug)]
pub struct Tail<T> {
    capacity: usize,
    kept: Mutex<Kept<T>>,
    /// Number of the newest entry.
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Kept<T> {
    last: u64,
    /// Oldest first, with their numbers: an entry may be removed before its turn.
    entries: VecDeque<(u64, T)>,
}

/// Entries after a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tailed<T> {
    /// The entries, oldest first.
    pub entries: Vec<T>,
    /// Number of the newest entry of the tail.
    pub last: u64,
    /// How many older entries after the number match and are left out.
    pub skipped: u64,
    /// Whether some entries after the number are no longer kept.
    pub gap: bool,
}

impl<T: Clone> Tail<T> {
    /// Makes a tail that keeps the last `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        let kept = Mutex::new(Kept {
            last: 0,
            entries: VecDeque::new(),
        });
        Self {
            capacity,
            kept,
            newest: watch::Sender::new(0),
        }
    }

    /// Appends entries, oldest first, and wakes the readers once.
    pub(crate) fn extend(&self, entries: impl IntoIterator<Item = T>) {
        let mut kept = self.kept.lock();
        for entry in entries {
            kept.last += 1;
            if kept.entries.len() >= self.capacity {
                kept.entries.pop_front();
            }
            let number = kept.last;
            kept.entries.push_back((number, entry));
        }
        self.newest.send_replace(kept.last);
    }

    /// Removes the entries that do not match.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.kept.lock().entries.retain(|(_, entry)| keep(entry));
    }

    /// Returns the newest entries after a number, at most `limit`, that match.
    #[must_use]
    pub fn after(&self, number: u64, limit: usize, matches: impl Fn(&T) -> bool) -> Tailed<T> {
        let kept = self.kept.lock();
        let mut entries = Vec::new();
        let mut skipped = 0;
        for (at, entry) in kept.entries.iter().rev() {
            if *at <= number {
                break;
            }
            if entries.len() < limit {
                if matches(entry) {
                    entries.push(entry.clone());
                }
            } else if matches(entry) {
                skipped += 1;
            }
        }
        let before = kept.last.saturating_sub(self.capacity as u64);
        entries.reverse();
        Tailed {
            entries,
            last: kept.last,
            skipped,
            gap: number < before,
        }
    }

    /// Returns the number of the newest entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.kept.lock().last
    }

    /// Returns a receiver that is notified of new entries.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reader_is_told_what_it_missed() {
        let tail = Tail::new(3);
        tail.extend(1..=2);
        let of = |entries: &[i32], last, skipped, gap| Tailed {
            entries: entries.to_vec(),
            last,
            skipped,
            gap,
        };
        assert_eq!(tail.after(0, 10, |_| true), of(&[1, 2], 2, 0, false));
        tail.extend(3..=5);
        assert_eq!(tail.after(1, 10, |_| true), of(&[3, 4, 5], 5, 0, true));
        assert_eq!(tail.after(2, 2, |_| true), of(&[4, 5], 5, 1, false));
        assert_eq!(tail.after(5, 2, |_| true), of(&[], 5, 0, false));
    }

    #[test]
    fn entries_of_others_are_neither_seen_nor_counted() {
        let tail = Tail::new(4);
        tail.extend(1..=4);
        let even = |number: &i32| number % 2 == 0;
        assert_eq!(
            tail.after(0, 1, even),
            Tailed {
                entries: vec![4],
                last: 4,
                skipped: 1,
                gap: false
            }
        );
        tail.retain(even);
        assert_eq!(tail.after(2, 9, |_| true).entries, [4]);
    }

    #[tokio::test]
    async fn readers_are_woken_once_per_append() {
        let tail = Tail::new(4);
        let mut newest = tail.follow();
        tail.extend([1, 2]);
        newest.changed().await.unwrap();
        assert_eq!(*newest.borrow_and_update(), 2);
        assert!(!newest.has_changed().unwrap());
    }
}
