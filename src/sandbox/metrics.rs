//! Metrics of sessions.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::runtime::Reason;

/// Sessions of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionMetrics {
    alive: Gauge,
    made: Counter,
    ended: Family<[(&'static str, &'static str); 1], Counter>,
}

impl SessionMetrics {
    /// Makes the metrics and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let shown = Self::default();
        registry.register("sessions", "Sessions that this process made and that live", shown.alive.clone());
        registry.register("sessions_made", "Sessions made", shown.made.clone());
        registry.register("sessions_ended", "Sessions that ended, by reason", shown.ended.clone());
        shown
    }

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
