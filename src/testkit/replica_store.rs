//! View of one replica on a shared store: a test sends its invalidations, and blocks writes.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use helmdeck_memory::{Access, Change, Changes, Op, Result, Store, StoreWrapper, Written};
use tokio::sync::{broadcast, watch};

/// Gate that blocks writes while it is shut.
#[derive(Debug)]
pub struct Gate {
    shut: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            shut: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
        }
    }
}

impl Gate {
    /// Shuts the gate.
    pub fn shut(&self) {
        self.shut.send_replace(true);
    }

    /// Opens the gate.
    pub fn open(&self) {
        self.shut.send_replace(false);
    }

    /// Waits until a write is blocked at the gate.
    pub async fn reached(&self) {
        // Fails only without a sender, which is this gate itself.
        let _ = self
            .waiting
            .subscribe()
            .wait_for(|waiting| *waiting > 0)
            .await;
    }

    async fn pass(&self) {
        if *self.shut.borrow() {
            self.waiting.send_modify(|waiting| *waiting += 1);
            let _ = self.shut.subscribe().wait_for(|shut| !shut).await;
            self.waiting.send_modify(|waiting| *waiting -= 1);
        }
    }
}

/// One replica's view of a shared store.
pub struct ReplicaStore {
    inner: Arc<dyn Store>,
    news: Mutex<Option<broadcast::Sender<Change>>>,
    /// Gate before a write.
    pub before_write: Gate,
    /// Gate after a write, before its answer.
    pub after_write: Gate,
    reads: AtomicUsize,
    locks: AtomicUsize,
}

helmdeck_core::redacted_debug!(ReplicaStore);

impl ReplicaStore {
    /// Creates a view that sends no changes.
    #[must_use]
    pub fn silent(inner: &Arc<dyn Store>) -> Arc<Self> {
        Self::new(inner, None)
    }

    /// Creates a view that sends the changes of [`ReplicaStore::announce`].
    #[must_use]
    pub fn announcing(inner: &Arc<dyn Store>) -> Arc<Self> {
        Self::new(inner, Some(broadcast::Sender::new(16)))
    }

    fn new(inner: &Arc<dyn Store>, news: Option<broadcast::Sender<Change>>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            news: Mutex::new(news),
            before_write: Gate::default(),
            after_write: Gate::default(),
            reads: AtomicUsize::new(0),
            locks: AtomicUsize::new(0),
        })
    }

    fn news(&self) -> parking_lot::MutexGuard<'_, Option<broadcast::Sender<Change>>> {
        self.news.lock()
    }

    /// Sends a change by another replica.
    pub fn announce(&self, change: Change) {
        // Fails only without a subscriber.
        let _ = self.news().as_ref().map(|news| news.send(change));
    }

    /// Ends the changes.
    pub fn fall_silent(&self) {
        self.news().take();
    }

    /// Returns how often the store was read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns how often a lock was requested.
    #[must_use]
    pub fn locks(&self) -> usize {
        self.locks.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl StoreWrapper for ReplicaStore {
    fn inner(&self) -> Result<&dyn Store> {
        Ok(&*self.inner)
    }

    async fn target(&self, access: Access) -> Result<&dyn Store> {
        let counter = match access {
            Access::Get => Some(&self.reads),
            Access::Lock => Some(&self.locks),
            Access::Read | Access::Scan | Access::Write | Access::Maintain => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        Ok(&*self.inner)
    }

    async fn pass_write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.before_write.pass().await;
        let written = self.inner.write(batch).await;
        self.after_write.pass().await;
        written
    }

    fn pass_changes(&self) -> Option<Changes> {
        self.news().as_ref().map(broadcast::Sender::subscribe)
    }
}
