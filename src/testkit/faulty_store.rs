//! Fault injection: a store that fails or stalls on demand, around a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_memory::{Access, Op, Result, Store, StoreError, StoreWrapper, Written};

/// An injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// Reads fail.
    Reads,
    /// Writes fail.
    Writes,
    /// All calls fail.
    All,
    /// All calls take 5 seconds.
    Stall,
}

/// A store that fails or stalls on demand.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    fault: AtomicU8,
    reads: AtomicUsize,
    scans: AtomicUsize,
    writes: AtomicUsize,
    lost: AtomicUsize,
}

helmdeck_core::redacted_debug!(FaultyStore);

impl FaultyStore {
    /// Wraps a store, without a fault.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let count = || AtomicUsize::new(0);
        Arc::new(Self {
            inner,
            fault: AtomicU8::new(0),
            reads: count(),
            scans: count(),
            writes: count(),
            lost: count(),
        })
    }

    /// Sets the fault from now on.
    pub fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// Loses the answer of a later write (1 = the next): the store writes, the caller gets an
    /// error.
    pub fn lose_answer(&self, of: usize) {
        self.lost.store(of, Ordering::SeqCst);
    }

    /// Returns how often the store was read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns how often the store was scanned.
    #[must_use]
    pub fn scans(&self) -> usize {
        self.scans.load(Ordering::SeqCst)
    }

    /// Returns how often the store was written.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    async fn act(&self, failing: Fault) -> Result<()> {
        let fault = self.fault.load(Ordering::SeqCst);
        if fault == Fault::Stall as u8 {
            tokio::time::sleep(Duration::from_secs(5)).await;
        } else if fault == failing as u8 || fault == Fault::All as u8 {
            return Err(StoreError::Unavailable {
                message: "injected failure".to_owned(),
                source: None,
            });
        }
        Ok(())
    }
}

#[async_trait]
impl StoreWrapper for FaultyStore {
    fn inner(&self) -> Result<&dyn Store> {
        Ok(&*self.inner)
    }

    async fn target(&self, access: Access) -> Result<&dyn Store> {
        let counter = match access {
            Access::Get => Some(&self.reads),
            Access::Scan => Some(&self.scans),
            Access::Write => Some(&self.writes),
            Access::Read | Access::Lock | Access::Maintain => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        self.act(match access {
            Access::Get | Access::Scan | Access::Read => Fault::Reads,
            Access::Write | Access::Lock | Access::Maintain => Fault::Writes,
        })
        .await?;
        Ok(&*self.inner)
    }

    async fn pass_write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        let written = self.target(Access::Write).await?.write(batch).await;
        let left = self
            .lost
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if left == Ok(1) {
            return Err(StoreError::Unavailable {
                message: "injected loss of the answer".to_owned(),
                source: None,
            });
        }
        written
    }
}
