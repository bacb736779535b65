//! Election of the one process that does work for all processes on a store.
//!
//! The elected process holds a lock of the store with an end, and renews it before each piece of
//! work. Another one takes over when it resigns, or after the end.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::{Lock, Result, Store};
use parking_lot::Mutex;

/// A candidate.
pub(crate) struct Election {
    store: Arc<dyn Store>,
    name: &'static str,
    /// How long an election lasts without renewal.
    term: Duration,
    held: Mutex<Option<Lock>>,
}

impl Election {
    /// Makes a candidate for some work.
    pub(crate) fn new(store: Arc<dyn Store>, name: &'static str, term: Duration) -> Self {
        Self {
            store,
            name,
            term,
            held: Mutex::new(None),
        }
    }

    /// Renews the election, or tries to win it; `false` if another process is elected.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    pub(crate) async fn is_won(&self) -> Result<bool> {
        let held = self.held.lock().take();
        let renewed = match held {
            Some(lock) => lock.renew(self.term).await?.then_some(lock),
            None => None,
        };
        let lock = match renewed {
            Some(lock) => Some(lock),
            None => self.store.try_lock(self.name, self.term).await?,
        };
        let is_won = lock.is_some();
        *self.held.lock() = lock;
        Ok(is_won)
    }

    /// Lets another process be elected at once.
    pub(crate) async fn resign(&self) {
        let held = self.held.lock().take();
        if let Some(lock) = held
            && let Err(error) = lock.release().await
        {
            tracing::debug!(%error, work = self.name, "the election ends by itself later");
        }
    }
}
