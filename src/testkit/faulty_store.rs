//! A store that fails or stalls on demand, around a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_memory::{
    Changes, Entry, Kind, ListPage, Lock, Mark, Namespace, NamespaceStats, Op, Order, Page, ReadStore, Resealed,
    Result, Scan, Stats, Store, StoreError, Walk, Written,
};

/// What a store does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Reads fail.
    Reads,
    /// Writes fail.
    Writes,
    /// Everything fails.
    All,
    /// Everything takes 5 seconds.
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

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyStore").finish_non_exhaustive()
    }
}

impl FaultyStore {
    /// Wraps a store; nothing is wrong with it yet.
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

    /// Says what goes wrong from now on.
    pub fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// Loses the answer of a write that is to come (1 = the next one): it is made, and whoever asked is told that it failed.
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
            return Err(StoreError::Unavailable { message: "told to fail".to_owned(), source: None });
        }
        Ok(())
    }
}

#[async_trait]
impl ReadStore for FaultyStore {
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.act(Fault::Reads).await?;
        self.inner.get(namespace, kind, key).await
    }

    async fn list(&self, namespace: &Namespace, kind: Kind, prefix: &str, page: Page) -> Result<ListPage> {
        self.act(Fault::Reads).await?;
        self.inner.list(namespace, kind, prefix, page).await
    }

    async fn scan(&self, namespace: &Namespace, kind: Kind, prefix: &str, order: Order, limit: usize) -> Result<Scan> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        self.act(Fault::Reads).await?;
        self.inner.scan(namespace, kind, prefix, order, limit).await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceStats>> {
        self.act(Fault::Reads).await?;
        self.inner.namespaces().await
    }

    async fn stats(&self) -> Result<Stats> {
        self.act(Fault::Reads).await?;
        self.inner.stats().await
    }

    async fn generation(&self) -> Result<u64> {
        self.act(Fault::Reads).await?;
        self.inner.generation().await
    }

    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk> {
        self.act(Fault::Reads).await?;
        self.inner.walk(after, limit).await
    }

    fn changes(&self) -> Option<Changes> {
        self.inner.changes()
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.act(Fault::Writes).await?;
        let written = self.inner.write(batch).await;
        let left = self.lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left == Ok(1) {
            return Err(StoreError::Unavailable { message: "told to lose the answer".to_owned(), source: None });
        }
        written
    }

    async fn sweep_expired(&self, limit: usize) -> Result<u64> {
        self.act(Fault::Writes).await?;
        self.inner.sweep_expired(limit).await
    }

    async fn trim(&self, limit: usize) -> Result<u64> {
        self.act(Fault::Writes).await?;
        self.inner.trim(limit).await
    }

    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed> {
        self.act(Fault::Writes).await?;
        self.inner.reseal(after, limit).await
    }

    async fn adopt_key(&self) -> Result<()> {
        self.act(Fault::Writes).await?;
        self.inner.adopt_key().await
    }

    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>> {
        self.act(Fault::Writes).await?;
        self.inner.try_lock(name, hold).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
