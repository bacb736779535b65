//! Histogram of how long calls took, without a lock: a call adds to two numbers.
//!
//! Its buckets are finer than those of the metric, so that quantiles can be read from it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Buckets of the metric: from 50 microseconds to about 200 seconds, each three times the one
/// before.
const SHOWN: usize = 15;
/// Buckets between two of the metric.
const STEPS: usize = 3;
/// Buckets below the first of the metric, down to 2 microseconds: hits are that fast.
const BELOW: usize = 9;
/// Number of buckets; the last one has no upper bound.
pub(crate) const BUCKETS: usize = BELOW + (SHOWN - 1) * STEPS + 2;

/// Upper bounds of the buckets but the last, in nanoseconds.
const BOUNDS: [u64; BUCKETS - 1] = bounds();

const fn bounds() -> [u64; BUCKETS - 1] {
    // Cube roots of 3 and 9, in millionths.
    const ROOTS: [u128; STEPS] = [1_000_000, 1_442_250, 2_080_084];
    let mut bounds = [0; BUCKETS - 1];
    let mut index = 0;
    while index < bounds.len() {
        // Three steps multiply by three; nine steps below 50 us divide by 27.
        let nanos = 50_000 * 3_u128.pow((index / STEPS) as u32) * ROOTS[index % STEPS];
        bounds[index] = (nanos / 27 / 1_000_000) as u64;
        index += 1;
    }
    // Exact where the metric has a bound.
    let mut shown = 0;
    while shown < SHOWN {
        bounds[BELOW + shown * STEPS] = 50_000 * 3_u64.pow(shown as u32);
        shown += 1;
    }
    bounds
}

/// Histogram of durations. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallDurations(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            nanos: AtomicU64::new(0),
        }
    }
}

impl CallDurations {
    /// Counts a call.
    pub(crate) fn observe(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let index = BOUNDS.partition_point(|bound| *bound < nanos);
        if let Some(count) = self.0.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
            self.0.nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// Returns the number of calls in each bucket.
    pub(crate) fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|index| self.0.counts[index].load(Ordering::Relaxed))
    }
}

impl TypedMetric for CallDurations {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for CallDurations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let counts = self.counts();
        let mut bound = 0.000_05;
        let mut shown = Vec::with_capacity(SHOWN + 1);
        let mut from = 0;
        for index in 0..SHOWN {
            let to = BELOW + index * STEPS + 1;
            shown.push((bound, counts[from..to].iter().sum()));
            (bound, from) = (bound * 3.0, to);
        }
        shown.push((f64::INFINITY, counts[from..].iter().sum()));
        let sum = self.0.nanos.load(Ordering::Relaxed) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &shown, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Returns the time within which a share of the calls ended, in microseconds; `None` without calls.
///
/// It is interpolated within a bucket, whose bounds are 44 % apart.
pub(crate) fn quantile(counts: &[u64; BUCKETS], share: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let wanted = (total as f64 * share).max(1.0);
    let mut before = 0_u64;
    for (index, count) in counts.iter().enumerate() {
        if *count > 0 && (before + count) as f64 >= wanted {
            let low = index.checked_sub(1).map_or(0, |index| BOUNDS[index]);
            let high = BOUNDS.get(index).copied().unwrap_or(low.saturating_mul(2));
            let part = (wanted - before as f64) / *count as f64;
            return Some(((low as f64 + (high - low) as f64 * part) / 1_000.0).ceil() as u64);
        }
        before += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_and_meet_those_of_the_metric() {
        assert!(BOUNDS.is_sorted_by(|one, next| one < next), "{BOUNDS:?}");
        assert_eq!(
            (BOUNDS[0], BOUNDS[BELOW], BOUNDS[BELOW + STEPS]),
            (1_851, 50_000, 150_000)
        );
        assert_eq!(BOUNDS.last(), Some(&(50_000 * 3_u64.pow(14))));
    }

    #[test]
    fn quantiles_are_within_a_bucket() {
        let durations = CallDurations::default();
        for micros in 1..=10_000 {
            durations.observe(Duration::from_micros(micros));
        }
        let counts = durations.counts();
        let near = |share, exact: u64| {
            let found = quantile(&counts, share).unwrap();
            assert!(
                found.abs_diff(exact) * 100 <= exact * 44,
                "{share}: {found}"
            );
        };
        near(0.5, 5_000);
        near(0.99, 9_900);
        assert_eq!(quantile(&[0; BUCKETS], 0.5), None);
    }

    #[test]
    fn longest_call_has_a_bucket() {
        let durations = CallDurations::default();
        durations.observe(Duration::MAX);
        assert_eq!(durations.counts().last(), Some(&1));
    }
}
