//! Metrics of sessions.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::runtime::Reason;

helmdeck_core::metrics! {
    /// Sessions of this process.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct SessionMetrics {
        alive: Gauge = "sessions" "Sessions that this process made and that live";
        made: Counter = "sessions_made" "Sessions made";
        ended: Family<[(&'static str, &'static str); 1], Counter> = "sessions_ended" "Sessions that ended, by reason";
    }
}

impl SessionMetrics {
    pub(super) fn made(&self) {
        self.alive.inc();
        self.made.inc();
    }

    /// Counts the end of a session that this process made.
    pub(super) fn ended(&self, why: Reason) {
        self.alive.dec();
        self.ended_elsewhere(why);
    }

    /// Counts the end of a session that another process made.
    pub(super) fn ended_elsewhere(&self, why: Reason) {
        self.ended.get_or_create(&[("reason", why.into())]).inc();
    }
}
