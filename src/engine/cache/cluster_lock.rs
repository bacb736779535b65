//! Singleflight across processes, for packs that enable it.
//!
//! The process that runs the handler holds a lock in the shared store. If the lock fails, the
//! handler runs anyway: that costs one run too many, never the call.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::jitter::jittered;
use helmdeck_memory::Lock;
use tokio::time::Instant;

use super::hub::{Hub, SLOW, TOO_LONG};
use super::key::{Key, hex};

/// Extra time for which a lock is held after the handler's timeout: the answer has to reach the
/// store.
const SLACK: Duration = Duration::from_secs(10);
/// Budget of taking a lock, as a multiple of that of a read. Taking a lock is a write.
const READS: u32 = 10;
/// The first and the longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// A process that waits for the lock of one key.
pub(crate) struct LockWaiter {
    hub: Arc<Hub>,
    name: String,
    hold: Duration,
    until: Instant,
    pause: Duration,
    waited: bool,
}

/// Result of one attempt to take the lock.
pub(crate) enum Attempt {
    /// This process holds the lock, and runs unless an answer has arrived.
    Acquired(Lock),
    /// Another process holds the lock. An answer may have arrived.
    Held,
    /// The wait timed out, or the lock failed: run without it.
    GaveUp,
}

impl LockWaiter {
    /// Starts to wait for a key, at most as long as its handler may run.
    pub(crate) fn join(hub: &Arc<Hub>, key: &Key, timeout: Duration) -> Self {
        Self {
            hub: Arc::clone(hub),
            name: format!("flight/{}", hex(&key.0)),
            hold: timeout.saturating_add(SLACK),
            until: Instant::now() + hub.config.cluster_wait.min(timeout),
            pause: PAUSES.0,
            waited: false,
        }
    }

    /// Takes the lock, or pauses. Cancel safe: a lock that arrives too late is freed.
    pub(crate) async fn wait(&mut self) -> Attempt {
        match self.take().await {
            Ok(Some(lock)) => Attempt::Acquired(lock),
            Ok(None) if Instant::now() >= self.until => {
                self.hub.metrics.cluster_wait("late");
                Attempt::GaveUp
            }
            Ok(None) => {
                self.waited = true;
                tokio::time::sleep_until(
                    self.until
                        .min(Instant::now() + jittered(self.pause, 0.5..=1.5)),
                )
                .await;
                self.pause = (self.pause * 3 / 2).min(PAUSES.1);
                Attempt::Held
            }
            Err(()) => {
                self.hub.metrics.cluster_wait("failed");
                Attempt::GaveUp
            }
        }
    }

    /// Counts the outcome of the wait, if there was one.
    pub(crate) fn leave(self, outcome: &'static str) {
        if self.waited {
            self.hub.metrics.cluster_wait(outcome);
        }
    }

    async fn take(&self) -> Result<Option<Lock>, ()> {
        let hub = &self.hub;
        if !hub.allows(&hub.writing) {
            return Err(());
        }
        let (store, name, hold) = (Arc::clone(&hub.store), self.name.clone(), self.hold);
        // In its own task, so that a lock that arrives too late is dropped, which frees it.
        let taking = tokio::spawn(async move { store.try_lock(&name, hold).await });
        match tokio::time::timeout(hub.config.read_budget * READS, taking).await {
            Ok(Ok(Ok(lock))) => {
                hub.store_works(&hub.writing);
                Ok(lock)
            }
            Ok(Ok(Err(error))) => {
                hub.store_fails(&hub.writing, "lock", error.trouble(), &error.to_string());
                Err(())
            }
            Ok(Err(_)) | Err(_) => {
                hub.store_fails(&hub.writing, "lock", SLOW, TOO_LONG);
                Err(())
            }
        }
    }
}
