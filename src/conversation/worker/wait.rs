//! Waits after failures.

use std::time::Duration;

use helmdeck_core::Timestamp;

use crate::config::SummarizerConfig;

/// Returns the wait after `failures` in a row.
///
/// It is exponential backoff with jitter between half and the whole, or as long as the endpoint
/// asks, if that is longer. Never more than the configured maximum.
pub(super) fn after(config: &SummarizerConfig, failures: u32, asked: Option<Duration>) -> Duration {
    jittered(step(config, failures))
        .max(asked.unwrap_or_default())
        .min(config.max_retry_wait.max(config.retry_wait))
}

/// Returns a random duration between half and the whole of `wait`.
pub(super) fn jittered(wait: Duration) -> Duration {
    helmdeck_core::jitter::jittered(wait, 0.5..=1.0)
}

/// Returns the rest of a wait that started at another time, perhaps by another clock.
pub(super) fn remaining(wait: Duration, began: Timestamp, now: Timestamp) -> Option<Duration> {
    Some(wait.saturating_sub(now.since(began))).filter(|rest| !rest.is_zero())
}

fn step(config: &SummarizerConfig, failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    config
        .retry_wait
        .saturating_mul(1 << doublings)
        .min(config.max_retry_wait.max(config.retry_wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_wait_doubles_up_to_its_longest() {
        let config = SummarizerConfig::default();
        let steps: Vec<_> = [1, 2, 3, 4, 9, 10, 1_000, u32::MAX]
            .map(|failures| step(&config, failures).as_secs())
            .into();
        assert_eq!(steps, [1, 2, 4, 8, 256, 300, 300, 300]);
    }

    #[test]
    fn endpoints_wait_counts_within_limit() {
        let config = SummarizerConfig::default();
        assert_eq!(after(&config, 1, Some(7 * SECOND)), 7 * SECOND);
        assert!(after(&config, 9, Some(SECOND)) >= 128 * SECOND);
        assert_eq!(
            after(&config, 1, Some(Duration::MAX)),
            config.max_retry_wait
        );
    }

    #[test]
    fn a_wait_of_another_process_is_kept() {
        let wait = Duration::from_secs(10);
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        assert_eq!(
            remaining(wait, at(100), at(104)),
            Some(Duration::from_secs(6))
        );
        assert_eq!(remaining(wait, at(100), at(110)), None);
        assert_eq!(
            remaining(wait, at(100), at(50)),
            Some(wait),
            "its clock is ahead: no longer than the wait"
        );
    }
}
