//! In-process event bus: publish, subscribe, replay.
//!
//! Publishing never blocks and never waits for a subscriber.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use helmdeck_core::{Clock, Timestamp};
use tokio::sync::broadcast;

use crate::event::{Event, EventKind};

/// Events flow through it in one order, and the last of them are kept.
#[derive(Clone)]
pub struct Bus(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    capacity: usize,
    kept: Mutex<EventBuffer>,
    sender: broadcast::Sender<Arc<Event>>,
}

struct EventBuffer {
    last: u64,
    events: VecDeque<Arc<Event>>,
}

/// The subscriber was too slow, or requested an event that is too old: this many events are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events are no longer kept")]
pub struct Lagged {
    /// How many events were missed.
    pub missed: u64,
}

impl Bus {
    /// Makes a bus that keeps the last `capacity` events (at least 1).
    #[must_use]
    pub fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        let capacity = capacity.max(1);
        let (sender, _) = broadcast::channel(capacity);
        Self(Arc::new(Inner {
            clock,
            capacity,
            kept: Mutex::new(EventBuffer {
                last: 0,
                events: VecDeque::new(),
            }),
            sender,
        }))
    }

    /// Publishes to all subscribers, and returns the sequence number of the event.
    pub fn publish(&self, kind: EventKind) -> u64 {
        let at: Timestamp = self.0.clock.now();
        let mut kept = self.0.kept.lock();
        kept.last += 1;
        let event = Arc::new(Event {
            sequence: kept.last,
            at,
            kind,
        });
        if kept.events.len() == self.0.capacity {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::clone(&event));
        // Sent under the lock, so that a subscriber sees each event exactly once: kept or live.
        // Without a subscriber it is only kept.
        let _ = self.0.sender.send(event);
        kept.last
    }

    /// Returns the sequence number of the last event; 0 before the first.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.0.kept.lock().last
    }

    /// Subscribes from now on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        let kept = self.0.kept.lock();
        let receiver = self.0.sender.subscribe();
        drop(kept);
        Subscription {
            replay: VecDeque::new(),
            receiver,
        }
    }

    /// Subscribes to everything after the event with this sequence number (0 = from the first).
    ///
    /// # Errors
    /// [`Lagged`] if some of it is no longer kept.
    pub fn subscribe_after(&self, sequence: u64) -> Result<Subscription, Lagged> {
        let kept = self.0.kept.lock();
        let oldest = kept
            .events
            .front()
            .map_or(kept.last + 1, |event| event.sequence);
        if sequence + 1 < oldest {
            return Err(Lagged {
                missed: oldest - sequence - 1,
            });
        }
        let replay = kept
            .events
            .iter()
            .filter(|event| event.sequence > sequence)
            .cloned()
            .collect();
        let receiver = self.0.sender.subscribe();
        drop(kept);
        Ok(Subscription { replay, receiver })
    }
}

helmdeck_core::redacted_debug!(Bus, this => capacity = this.0.capacity);

/// Subscription to the bus.
#[derive(Debug)]
pub struct Subscription {
    replay: VecDeque<Arc<Event>>,
    receiver: broadcast::Receiver<Arc<Event>>,
}

impl Subscription {
    /// Waits for the next event; `None` when the bus is gone. Safe to cancel.
    ///
    /// # Errors
    /// [`Lagged`] if this listener was too slow; the next call goes on with the oldest event that is kept.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Lagged>> {
        if let Some(event) = self.replay.pop_front() {
            return Some(Ok(event));
        }
        match self.receiver.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Err(Lagged { missed })),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helmdeck_core::SystemClock;

    fn purged(rows: u64) -> EventKind {
        EventKind::CachePurged {
            what: "all".into(),
            rows,
        }
    }

    #[tokio::test]
    async fn a_late_listener_catches_up_without_gap_or_repeat() {
        let bus = Bus::new(8, Arc::new(SystemClock::default()));
        for rows in 1..=3 {
            bus.publish(purged(rows));
        }
        let mut late = bus.subscribe_after(1).unwrap();
        bus.publish(purged(4));
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(late.next().await.unwrap().unwrap().sequence);
        }
        assert_eq!(seen, [2, 3, 4]);
    }

    #[tokio::test]
    async fn replay_reports_missing_events() {
        let bus = Bus::new(2, Arc::new(SystemClock::default()));
        let mut slow = bus.subscribe();
        for rows in 1..=5 {
            bus.publish(purged(rows));
        }
        assert_eq!(bus.subscribe_after(0).unwrap_err(), Lagged { missed: 3 });
        assert_eq!(
            slow.next().await.unwrap().unwrap_err(),
            Lagged { missed: 3 }
        );
        assert_eq!(slow.next().await.unwrap().unwrap().sequence, 4);
        drop(bus);
        assert_eq!(slow.next().await.unwrap().unwrap().sequence, 5);
        assert!(slow.next().await.is_none());
    }
}
