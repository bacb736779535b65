//! Backoff between starts of a server that failed.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// First wait.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// A connection that lived this long resets the count of failures.
const GOOD: Duration = Duration::from_secs(60);

/// Consecutive failures of one server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failures {
    in_a_row: u32,
}

impl Failures {
    /// Counts a start that failed, and returns how long to wait: 1 s, 2 s, 4 s, ... 60 s, each give or take a quarter.
    pub(crate) fn start_failed(&mut self) -> Duration {
        self.in_a_row = self.in_a_row.saturating_add(1);
        jittered(wait(self.in_a_row), random())
    }

    /// Counts the unexpected end of a connection, and returns how long to wait. The first one permits a new start at
    /// once; repeated ones wait like failed starts.
    pub(crate) fn ended(&mut self, lived: Duration) -> Duration {
        if lived >= GOOD {
            self.in_a_row = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        match self.in_a_row {
            1 => Duration::ZERO,
            more => jittered(wait(more - 1), random()),
        }
    }
}

fn wait(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST)
}

/// Adds jitter of up to a quarter either way, so that servers that fail together do not start together.
fn jittered(wait: Duration, random: u64) -> Duration {
    let quarter = wait / 4;
    let span = u64::try_from(quarter.as_micros()).unwrap_or(u64::MAX).saturating_mul(2).max(1);
    wait - quarter + Duration::from_micros(random % span)
}

/// Returns a random number for jitter: every hasher of the standard library starts with other keys.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(wait: Duration, seconds: u64) -> bool {
        let middle = Duration::from_secs(seconds);
        wait >= middle - middle / 4 && wait <= middle + middle / 4
    }

    #[test]
    fn starts_that_fail_wait_twice_as_long_each_time_up_to_a_minute() {
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
    fn the_first_crash_is_free_and_a_long_life_forgets() {
        let mut failures = Failures::default();
        assert_eq!(failures.ended(Duration::from_secs(1)), Duration::ZERO);
        assert!(about(failures.ended(Duration::from_secs(1)), 1));
        assert!(about(failures.ended(Duration::from_secs(1)), 2));
        assert_eq!(failures.ended(GOOD), Duration::ZERO);
    }

    #[test]
    fn jitter_spreads_over_the_whole_range() {
        let wait = Duration::from_secs(4);
        assert_eq!(jittered(wait, 0), Duration::from_secs(3));
        assert!(jittered(wait, u64::MAX) < Duration::from_secs(5));
        assert_ne!(random(), random());
    }
}
