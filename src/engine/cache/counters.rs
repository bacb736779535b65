//! Plaintext counters per pack: what the cache did and saved.
//!
//! They are kept in the system database, so that `cache stats` and `cache savings` work without the
//! memory key. They hold only names and numbers, never data of a call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_core::CacheStatus;
use helmdeck_system::Counter;

/// The counters of one pack since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    by_status: [AtomicU64; CacheStatus::ALL.len()],
    saved_calls: AtomicU64,
    saved_micros: AtomicU64,
    saved_upstream: AtomicU64,
    /// Savings that were taken already.
    taken: parking_lot::Mutex<Savings>,
}

/// Cost that cached answers saved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved {
    pub(crate) time: Duration,
    pub(crate) upstream_calls: u32,
}

impl Counters {
    pub(crate) fn answered(&self, status: CacheStatus) {
        self.by_status[status as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn saved(&self, saved: Saved) {
        self.saved_calls.fetch_add(1, Ordering::Relaxed);
        self.saved_micros.fetch_add(
            u64::try_from(saved.time.as_micros()).unwrap_or(0),
            Ordering::Relaxed,
        );
        self.saved_upstream
            .fetch_add(u64::from(saved.upstream_calls), Ordering::Relaxed);
    }

    /// Returns the savings since the start.
    fn savings(&self) -> Savings {
        let taken = self.taken.lock();
        let now = [&self.saved_calls, &self.saved_micros, &self.saved_upstream];
        std::array::from_fn(|index| taken[index] + now[index].load(Ordering::Relaxed))
    }

    /// Takes the counts as (name, count), without zeros.
    fn take(&self) -> Vec<(&'static str, u64)> {
        let mut taken = self.taken.lock();
        let statuses = CacheStatus::ALL
            .iter()
            .map(|status| (status.as_str(), &self.by_status[*status as usize]));
        let savings = [
            ("saved_calls", &self.saved_calls),
            ("saved_us", &self.saved_micros),
            ("saved_upstream_calls", &self.saved_upstream),
        ];
        let savings = savings
            .into_iter()
            .zip(taken.iter_mut())
            .map(|((name, counter), taken)| {
                let count = counter.swap(0, Ordering::Relaxed);
                *taken += count;
                (name, count)
            });
        statuses
            .map(|(name, counter)| (name, counter.swap(0, Ordering::Relaxed)))
            .chain(savings)
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

/// The counters of all packs of an engine.
#[derive(Debug, Default)]
pub(crate) struct AllCounters(parking_lot::Mutex<BTreeMap<String, Arc<Counters>>>);

/// What cached answers saved: calls, microseconds and upstream calls.
pub(crate) type Savings = [u64; 3];

impl AllCounters {
    pub(crate) fn of(&self, pack: &str) -> Arc<Counters> {
        let mut all = self.0.lock();
        Arc::clone(all.entry(pack.to_owned()).or_default())
    }

    /// Returns what cached answers of each pack saved since the start.
    pub(crate) fn savings(&self) -> Vec<(String, Savings)> {
        self.0
            .lock()
            .iter()
            .map(|(pack, counters)| (pack.clone(), counters.savings()))
            .collect()
    }

    /// Takes the counts since the last time.
    pub(crate) fn take(&self) -> Vec<Counter> {
        let all = self.0.lock();
        all.iter()
            .flat_map(|(pack, counters)| {
                let counted = |(name, value): (&str, u64)| Counter {
                    pack: pack.clone(),
                    name: name.to_owned(),
                    value,
                };
                counters.take().into_iter().map(counted).collect::<Vec<_>>()
            })
            .collect()
    }
}
