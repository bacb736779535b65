//! Metrics of jobs.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Unit;

use super::JobState;
use crate::metrics::Metrics;

type Labels = [(&'static str, &'static str); 1];

/// Metrics of jobs.
pub(super) struct JobMetrics {
    now: Family<Labels, Gauge>,
    ended: Family<Labels, Counter>,
    pub(super) refused: Counter,
    pub(super) lost: Counter,
    pub(super) save_failures: Counter,
    pub(super) waited: Histogram,
}

impl JobMetrics {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let this = Self {
            now: Family::default(),
            ended: Family::default(),
            refused: Counter::default(),
            lost: Counter::default(),
            save_failures: Counter::default(),
            // From a millisecond to about five hours.
            waited: Histogram::new(exponential_buckets(0.001, 4.0, 13)),
        };
        metrics.register(|registry| {
            registry.register("jobs", "Jobs of this process that have not ended, by state", this.now.clone());
            registry.register("jobs_ended", "Jobs of this process that ended, by state", this.ended.clone());
            registry.register("jobs_refused", "Jobs refused because too many waited", this.refused.clone());
            registry.register("jobs_lost", "Jobs of processes that are gone, ended by this one", this.lost.clone());
            registry.register("jobs_save_failures", "Writes of jobs that failed", this.save_failures.clone());
            registry.register_with_unit(
                "job_wait",
                "How long jobs waited for their turn",
                Unit::Seconds,
                this.waited.clone(),
            );
        });
        this
    }

    pub(super) fn stand(&self, waiting: usize, running: usize) {
        for (state, count) in [(JobState::Queued, waiting), (JobState::Running, running)] {
            let gauge = self.now.get_or_create_owned(&[("state", state.as_str())]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn ended(&self, state: JobState) {
        self.ended.get_or_create_owned(&[("state", state.as_str())]).inc();
    }
}
