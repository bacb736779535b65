//! Metrics of jobs.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::JobState;

type Labels = [(&'static str, &'static str); 1];

helmdeck_core::metrics! {
    /// Metrics of jobs.
    pub(super) struct JobMetrics {
        now: Family<Labels, Gauge> = "jobs" "Jobs of this process that have not ended, by state";
        ended: Family<Labels, Counter> = "jobs_ended" "Jobs of this process that ended, by state";
        pub(super) refused: Counter = "jobs_refused" "Jobs refused because too many waited";
        pub(super) lost: Counter = "jobs_lost" "Jobs of processes that are gone, ended by this one";
        pub(super) claimed: Counter = "jobs_claimed" "Jobs of the shared queue that this process took";
        pub(super) again: Counter = "jobs_queued_again" "Jobs of processes that are gone or end, to be run by another one";
        schedules: Family<Labels, Counter> = "schedule_runs" "Due times of schedules that this process took, by result";
        pub(super) save_failures: Counter = "jobs_save_failures" "Writes of jobs that failed";
        /// From a millisecond to about five hours.
        pub(super) waited: Histogram = "job_wait" [Seconds] "How long jobs waited for their turn",
            Histogram::new(exponential_buckets(0.001, 4.0, 13));
    }
}

impl JobMetrics {
    pub(super) fn stand(&self, waiting: usize, running: usize) {
        for (state, count) in [(JobState::Queued, waiting), (JobState::Running, running)] {
            let gauge = self.now.get_or_create_owned(&[("state", state.as_str())]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn scheduled(&self, result: &'static str) {
        self.schedules
            .get_or_create_owned(&[("result", result)])
            .inc();
    }

    pub(super) fn ended(&self, state: JobState) {
        self.ended
            .get_or_create_owned(&[("state", state.as_str())])
            .inc();
    }
}
