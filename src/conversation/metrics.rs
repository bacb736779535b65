//! What is counted.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use helmdeck_core::Timestamp;

use crate::health::Health;
use crate::summarizer::Failure;

const HOUR: i64 = 3600 * 1_000_000;
const HOURS: usize = 24;

/// What a conversation memory did since it was opened, in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Turns added.
    pub turns_added: u64,
    /// Summaries made and stored.
    pub folds: u64,
    /// Summaries that were thrown away, because the conversation was flushed, restored or changed meanwhile.
    pub folds_discarded: u64,
    /// Failures to make one, by their fixed word.
    pub fold_failures: BTreeMap<&'static str, u64>,
    /// How often more batches of a conversation waited than `recovery_backlog_max`.
    pub long_backlogs: u64,
    /// Turns dropped before they were summarised.
    pub turns_dropped: u64,
    /// Calls refused for an incomplete identity.
    pub identities_rejected: u64,
    /// Changes of health, by the state that they led to.
    pub health_moves: BTreeMap<&'static str, u64>,
    /// Reads that were answered from memory.
    pub hot_hits: u64,
    /// Reads that were not.
    pub hot_misses: u64,
    /// The bytes of conversations in memory.
    pub hot_bytes: u64,
    /// Conversations that wait for a summary now.
    pub backlog: u64,
}

/// Where it is counted.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) turns_added: AtomicU64,
    pub(crate) folds: AtomicU64,
    pub(crate) folds_discarded: AtomicU64,
    pub(crate) long_backlogs: AtomicU64,
    /// Conversations that wait for a summary now; set by the worker.
    pub(crate) backlog: AtomicU64,
    fold_failures: Mutex<BTreeMap<&'static str, u64>>,
    health_moves: [AtomicU64; Health::ALL.len()],
    turns_dropped: AtomicU64,
    identities_rejected: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    recently_rejected: Day,
    recently_dropped: Day,
}

impl Counters {
    /// Counts a failure to make a summary.
    pub(crate) fn fold_failed(&self, failure: Failure) {
        *self.fold_failures.lock().entry(failure.as_str()).or_default() += 1;
    }

    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self, new: Health) {
        self.health_moves[new as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self, now: Timestamp, count: u64) {
        self.turns_dropped.fetch_add(count, Ordering::Relaxed);
        self.recently_dropped.add(now, count);
    }

    pub(crate) fn rejected(&self, now: Timestamp) {
        self.identities_rejected.fetch_add(1, Ordering::Relaxed);
        self.recently_rejected.add(now, 1);
    }

    /// Returns how many calls were refused for their identity, and how many turns dropped, in the last 24 hours.
    pub(crate) fn last_day(&self, now: Timestamp) -> (u64, u64) {
        (self.recently_rejected.sum(now), self.recently_dropped.sum(now))
    }

    pub(crate) fn read(&self, hot_bytes: u64) -> Metrics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            turns_added: of(&self.turns_added),
            folds: of(&self.folds),
            folds_discarded: of(&self.folds_discarded),
            long_backlogs: of(&self.long_backlogs),
            fold_failures: self.fold_failures.lock().clone(),
            turns_dropped: of(&self.turns_dropped),
            identities_rejected: of(&self.identities_rejected),
            health_moves: Health::ALL.map(|health| (health.as_str(), of(&self.health_moves[health as usize]))).into(),
            hot_hits: of(&self.hits),
            hot_misses: of(&self.misses),
            hot_bytes,
            backlog: of(&self.backlog),
        }
    }
}

/// Counts of the last 24 hours, one an hour.
#[derive(Default)]
struct Day(Mutex<[(i64, u64); HOURS]>);

impl Day {
    fn add(&self, now: Timestamp, count: u64) {
        let hour = now.micros().div_euclid(HOUR);
        let mut hours = self.0.lock();
        let place = &mut hours[usize::try_from(hour.rem_euclid(HOURS as i64)).unwrap_or_default()];
        if place.0 != hour {
            *place = (hour, 0);
        }
        place.1 += count;
    }

    fn sum(&self, now: Timestamp) -> u64 {
        let hour = now.micros().div_euclid(HOUR);
        let hours = self.0.lock();
        hours.iter().filter(|(at, _)| (hour - HOURS as i64 + 1..=hour).contains(at)).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_forgotten_after_a_day() {
        let (day, start) = (Day::default(), 500_000 * HOUR);
        day.add(Timestamp(start), 2);
        day.add(Timestamp(start + 5 * HOUR), 3);
        assert_eq!(day.sum(Timestamp(start + 23 * HOUR)), 5);
        assert_eq!(day.sum(Timestamp(start + 24 * HOUR)), 3);
        day.add(Timestamp(start + 24 * HOUR), 7);
        assert_eq!(day.sum(Timestamp(start + 24 * HOUR)), 10);
        assert_eq!(day.sum(Timestamp(start + 47 * HOUR)), 7);
        assert_eq!(day.sum(Timestamp(start + 48 * HOUR)), 0);
    }
}
