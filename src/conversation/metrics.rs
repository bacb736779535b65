//! Metrics.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use helmdeck_core::Timestamp;

use crate::health::Health;
use crate::summarizer::Failure;

const HOUR: i64 = 3600 * 1_000_000;
const HOURS: usize = 24;

/// Counters of a conversation memory in this process, since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Turns added.
    pub turns_added: u64,
    /// Turns added that look like they hold a credential.
    pub turns_with_secret: u64,
    /// Summaries made and stored.
    pub summaries: u64,
    /// Summaries discarded because the conversation was flushed, restored or changed meanwhile.
    pub summaries_discarded: u64,
    /// Failures of the summarizer, by reason.
    pub summary_failures: BTreeMap<&'static str, u64>,
    /// Number of times that a conversation had more than `recovery_backlog_max` batches waiting.
    pub long_backlogs: u64,
    /// Turns dropped before they were summarised.
    pub turns_dropped: u64,
    /// Calls refused for an incomplete identity.
    pub identities_rejected: u64,
    /// Changes of health, by new state.
    pub health_moves: BTreeMap<&'static str, u64>,
    /// Reads answered from memory.
    pub hot_hits: u64,
    /// Reads that needed the store.
    pub hot_misses: u64,
    /// Bytes of the cached conversations.
    pub hot_bytes: u64,
    /// Conversations waiting for a summary.
    pub backlog: u64,
}

/// The counters.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) turns_added: AtomicU64,
    pub(crate) turns_with_secret: AtomicU64,
    pub(crate) summaries: AtomicU64,
    pub(crate) summaries_discarded: AtomicU64,
    pub(crate) long_backlogs: AtomicU64,
    /// Conversations waiting for a summary; set by the worker.
    pub(crate) backlog: AtomicU64,
    summary_failures: Mutex<BTreeMap<&'static str, u64>>,
    health_moves: [AtomicU64; Health::ALL.len()],
    turns_dropped: AtomicU64,
    identities_rejected: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    recently_rejected: Day,
    recently_dropped: Day,
}

impl Counters {
    /// Counts a failure of the summarizer.
    pub(crate) fn summary_failed(&self, failure: Failure) {
        *self
            .summary_failures
            .lock()
            .entry(failure.as_str())
            .or_default() += 1;
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

    /// Returns the refused identities and the dropped turns of the last 24 hours.
    pub(crate) fn last_day(&self, now: Timestamp) -> (u64, u64) {
        (
            self.recently_rejected.sum(now),
            self.recently_dropped.sum(now),
        )
    }

    pub(crate) fn read(&self, hot_bytes: u64) -> Metrics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            turns_added: of(&self.turns_added),
            turns_with_secret: of(&self.turns_with_secret),
            summaries: of(&self.summaries),
            summaries_discarded: of(&self.summaries_discarded),
            long_backlogs: of(&self.long_backlogs),
            summary_failures: self.summary_failures.lock().clone(),
            turns_dropped: of(&self.turns_dropped),
            identities_rejected: of(&self.identities_rejected),
            health_moves: Health::ALL
                .map(|health| (health.as_str(), of(&self.health_moves[health as usize])))
                .into(),
            hot_hits: of(&self.hits),
            hot_misses: of(&self.misses),
            hot_bytes,
            backlog: of(&self.backlog),
        }
    }
}

/// Hourly counts of the last 24 hours.
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
        hours
            .iter()
            .filter(|(at, _)| (hour - HOURS as i64 + 1..=hour).contains(at))
            .map(|(_, count)| count)
            .sum()
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
