//! Jitter for waits, so that processes and servers that failed together do not retry together.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::random::random_u64;

/// Returns a wait times a random factor of the range, such as `0.5..=1.5`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let wait = helmdeck_core::jitter::jittered(Duration::from_secs(4), 0.75..=1.25);
/// assert!(wait >= Duration::from_secs(3) && wait <= Duration::from_secs(5));
/// ```
#[must_use]
pub fn jittered(wait: Duration, factor: RangeInclusive<f64>) -> Duration {
    let random = random_u64() % 1024;
    let (low, high) = factor.into_inner();
    let factor = low + (high - low) * (random as f64 / 1023.0);
    Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_spreads_over_the_range() {
        let second = Duration::from_secs(1);
        let waits: Vec<Duration> = (0..100).map(|_| jittered(second, 0.5..=1.5)).collect();
        assert!(
            waits
                .iter()
                .all(|wait| (second / 2..=second * 3 / 2).contains(wait)),
            "{waits:?}"
        );
        assert!(
            waits.iter().any(|wait| *wait < second) && waits.iter().any(|wait| *wait > second),
            "{waits:?}"
        );
    }
}
