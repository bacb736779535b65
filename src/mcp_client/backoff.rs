//! Backoff between starts of a server that failed.

use std::ops::RangeInclusive;
use std::time::Duration;

use helmdeck_core::jitter::jittered;

/// First wait.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// Factor of a wait, so that servers that fail together do not start together.
const JITTER: RangeInclusive<f64> = 0.75..=1.25;
/// A connection that lived this long resets the count of failures.
const GOOD: Duration = Duration::from_secs(60);

/// Consecutive failures of one server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failures {
    in_a_row: u32,
}

impl Failures {
    /// Counts a failed start, and returns how long to wait.
    ///
    /// The times are 1 s, 2 s, 4 s, ... 60 s, each plus or minus a quarter.
    pub(crate) fn start_failed(&mut self) -> Duration {
        self.in_a_row = self.in_a_row.saturating_add(1);
        jittered(wait(self.in_a_row), JITTER)
    }

    /// Counts the unexpected end of a connection, and returns how long to wait.
    ///
    /// The first one permits a new start at once; repeated ones wait like failed starts.
    pub(crate) fn ended(&mut self, lived: Duration) -> Duration {
        if lived >= GOOD {
            self.in_a_row = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        match self.in_a_row {
            1 => Duration::ZERO,
            more => jittered(wait(more - 1), JITTER),
        }
    }
}

fn wait(failures: u32) -> Duration {
    FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(wait: Duration, seconds: u64) -> bool {
        let middle = Duration::from_secs(seconds);
        wait >= middle - middle / 4 && wait <= middle + middle / 4
    }

    #[test]
    fn failed_starts_double_the_wait_to_a_minute() {
        let mut failures = Failures::default();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = failures.start_failed();
            assert!(about(wait, seconds), "{wait:?} is not about {seconds} s");
        }
        for _ in 0..100 {
            assert!(about(failures.start_failed(), 60));
        }
    }

    #[test]
    fn first_crash_and_long_life_reset_the_wait() {
        let mut failures = Failures::default();
        assert_eq!(failures.ended(Duration::from_secs(1)), Duration::ZERO);
        assert!(about(failures.ended(Duration::from_secs(1)), 1));
        assert!(about(failures.ended(Duration::from_secs(1)), 2));
        assert_eq!(failures.ended(GOOD), Duration::ZERO);
    }
}
