//! A bus that records its events for assertions.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Clock;
use helmdeck_events::Bus;
use serde_json::Value;

/// A bus with its recorded events, at most the last 1000.
#[derive(Clone)]
pub struct RecordingBus(Bus);

impl RecordingBus {
    /// Creates a bus without events.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Bus::new(1000, clock))
    }

    /// Returns the bus.
    #[must_use]
    pub const fn bus(&self) -> &Bus {
        &self.0
    }

    /// Returns all events so far, as JSON, in order.
    #[allow(
        clippy::expect_used,
        reason = "an event is always written, and no test tells more than are kept"
    )]
    pub async fn events(&self) -> Vec<Value> {
        let mut kept = self.0.subscribe_after(0).expect("every event is kept");
        let mut recording_bus = Vec::new();
        // Published events are there at once; an empty read means that none is left.
        while let Ok(Some(Ok(event))) = tokio::time::timeout(Duration::ZERO, kept.next()).await {
            recording_bus.push(serde_json::to_value(&*event).expect("an event is JSON"));
        }
        recording_bus
    }
}

helmdeck_core::redacted_debug!(RecordingBus);
