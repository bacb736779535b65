//! A clock for tests.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};

/// Manual clock: it moves only when a test moves it. The default starts at 2026-01-01T00:00:00Z.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    monotonic: AtomicU64,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Timestamp(1_767_225_600_000_000))
    }
}

impl ManualClock {
    /// Returns a clock at a time.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self {
            now: AtomicI64::new(now.micros()),
            monotonic: AtomicU64::new(1_000_000),
        }
    }

    /// Moves both times forwards.
    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(signed(by), Ordering::SeqCst);
        self.monotonic
            .fetch_add(signed(by).unsigned_abs(), Ordering::SeqCst);
    }

    /// Moves the wall clock backwards.
    pub fn go_back(&self, by: Duration) {
        self.now.fetch_sub(signed(by), Ordering::SeqCst);
    }

    /// Sets the wall clock, also backwards.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic.load(Ordering::SeqCst))
    }
}

fn signed(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
