//! One flight per key across processes, for packs that ask for it: who runs holds a lock that all processes on the store see.
//!
//! Whatever goes wrong with the lock, the handler runs: it costs a run too many, never the call.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::Lock;
use tokio::time::Instant;

use super::hub::{Hub, SLOW, TOO_LONG};
use super::key::{Key, hex};

/// How much longer than the handler may run a lock is held: the time that its answer takes to the store.
const SLACK: Duration = Duration::from_secs(10);
/// Taking a lock is a write: it may take so many times as long as a read.
const READS: u32 = 10;
/// The first and the longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// A place in the line of those who want to run for one key.
pub(crate) struct Line {
    hub: Arc<Hub>,
    name: String,
    hold: Duration,
    until: Instant,
    pause: Duration,
    waited: bool,
}

/// What came of a while in the line.
pub(crate) enum Turn {
    /// It is this process's turn, unless an answer is there by now.
    Mine(Lock),
    /// Somebody else runs; there may be an answer by now.
    Theirs,
    /// There is no waiting any more: run without a lock.
    Alone,
}

impl Line {
    /// Joins the line for a key, for no longer than its handler may run.
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

    /// Takes the lock, or waits a little. Safe to cancel: a lock that comes too late is freed.
    pub(crate) async fn wait(&mut self) -> Turn {
        match self.take().await {
            Ok(Some(lock)) => Turn::Mine(lock),
            Ok(None) if Instant::now() >= self.until => {
                self.hub.metrics.cluster_wait("late");
                Turn::Alone
            }
            Ok(None) => {
                self.waited = true;
                tokio::time::sleep_until(self.until.min(Instant::now() + spread(self.pause))).await;
                self.pause = (self.pause * 3 / 2).min(PAUSES.1);
                Turn::Theirs
            }
            Err(()) => {
                self.hub.metrics.cluster_wait("failed");
                Turn::Alone
            }
        }
    }

    /// Counts how the wait ended, if there was one.
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
        // A task of its own, so that a lock taken after all is dropped, and thereby freed, by somebody.
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

/// Returns between half a pause and one and a half, so that those who wait do not come all at once.
fn spread(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1024;
    pause.mul_f64(0.5 + random as f64 / 1024.0)
}
