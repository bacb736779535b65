//! Circuit breaker: skips a failing store for a while, then lets one operation probe it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Circuit breaker: closed while the store works, open after repeated failures.
///
/// While it is open, one probe at a time decides.
#[derive(Debug)]
pub(crate) struct Breaker {
    threshold: u32,
    open_for: Duration,
    failures: AtomicU32,
    /// Monotonic time in microseconds until which the store is skipped; 0 = closed.
    open_until: AtomicU64,
}

impl Breaker {
    pub(crate) const fn new(threshold: u32, open_for: Duration) -> Self {
        Self {
            threshold,
            open_for,
            failures: AtomicU32::new(0),
            open_until: AtomicU64::new(0),
        }
    }

    /// Returns whether the store may be used. While open, one caller per `open_for` passes as a
    /// probe.
    pub(crate) fn allows(&self, now: Duration) -> bool {
        let until = self.open_until.load(Ordering::Acquire);
        if until == 0 {
            return true;
        }
        let now = micros(now);
        // The caller that moves the end is the probe; all others wait for its result.
        now >= until
            && self
                .open_until
                .compare_exchange(
                    until,
                    now + micros(self.open_for),
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .is_ok()
    }

    /// Records a success; returns whether this closed the breaker.
    pub(crate) fn succeeded(&self) -> bool {
        self.failures.store(0, Ordering::Release);
        self.open_until.swap(0, Ordering::AcqRel) != 0
    }

    /// Records a failure; returns whether this opened the breaker.
    pub(crate) fn failed(&self, now: Duration) -> bool {
        let failures = self
            .failures
            .fetch_add(1, Ordering::AcqRel)
            .saturating_add(1);
        if failures < self.threshold {
            return false;
        }
        self.open_until
            .swap(micros(now) + micros(self.open_for), Ordering::AcqRel)
            == 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open_until.load(Ordering::Acquire) != 0
    }

    /// Returns whether the store is skipped now: the breaker is open, and no probe is due.
    pub(crate) fn skips(&self, now: Duration) -> bool {
        micros(now) < self.open_until.load(Ordering::Acquire)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_failures_and_closes_after_a_probe() {
        let breaker = Breaker::new(3, Duration::from_secs(5));
        let at = Duration::from_secs;
        assert!(!breaker.failed(at(1)) && !breaker.failed(at(1)) && breaker.allows(at(1)));
        assert!(breaker.failed(at(1)) && breaker.is_open());
        assert!(!breaker.allows(at(3)));
        assert!(
            breaker.skips(at(3)) && !breaker.skips(at(6)),
            "a probe is due"
        );
        assert!(breaker.allows(at(6)), "the probe");
        assert!(!breaker.allows(at(6)), "one probe at a time");
        breaker.failed(at(6));
        assert!(!breaker.allows(at(10)));
        assert!(breaker.allows(at(11)));
        assert!(
            breaker.succeeded()
                && !breaker.is_open()
                && breaker.allows(at(11))
                && !breaker.skips(at(11))
        );
    }

    #[test]
    fn a_success_in_between_starts_the_count_anew() {
        let breaker = Breaker::new(2, Duration::from_secs(5));
        breaker.failed(Duration::ZERO);
        breaker.succeeded();
        assert!(!breaker.failed(Duration::ZERO));
    }
}
