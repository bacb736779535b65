//! A clock that stands still until it is moved.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_core::{Clock, Timestamp};

/// A clock that stands still until it is moved. It starts at 2026-01-01T00:00:00Z.
#[derive(Debug)]
pub struct TestClock {
    now: AtomicI64,
    monotonic: AtomicU64,
}

impl Default for TestClock {
    fn default() -> Self {
        Self { now: AtomicI64::new(1_767_225_600_000_000), monotonic: AtomicU64::new(1_000_000) }
    }
}

impl TestClock {
    /// Moves both times on.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.now.fetch_add(i64::try_from(micros).unwrap_or(i64::MAX), Ordering::SeqCst);
        self.monotonic.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the wall clock, also backwards.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.micros(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic.load(Ordering::SeqCst))
    }
}
