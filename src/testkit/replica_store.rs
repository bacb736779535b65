//! One replica's way to a store that several share: what others do is told by hand, and writes stop where a test wants them to.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_memory::{
    Change, Changes, Entry, Kind, ListPage, Lock, Mark, Namespace, NamespaceStats, Op, Order, Page, ReadStore,
    Resealed, Result, Scan, Stats, Store, Walk, Written,
};
use tokio::sync::{broadcast, watch};

/// A place where writes stop while it is shut.
#[derive(Debug)]
pub struct Gate {
    shut: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { shut: watch::Sender::new(false), waiting: watch::Sender::new(0) }
    }
}

impl Gate {
    /// Lets nothing through from now on.
    pub fn shut(&self) {
        self.shut.send_replace(true);
    }

    /// Lets everything through.
    pub fn open(&self) {
        self.shut.send_replace(false);
    }

    /// Waits until something stands at the shut gate.
    pub async fn reached(&self) {
        // Fails only without a sender, which is this gate itself.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }

    async fn pass(&self) {
        if *self.shut.borrow() {
            self.waiting.send_modify(|waiting| *waiting += 1);
            let _ = self.shut.subscribe().wait_for(|shut| !shut).await;
            self.waiting.send_modify(|waiting| *waiting -= 1);
        }
    }
}

/// One replica's way to a store that several share.
pub struct ReplicaStore {
    inner: Arc<dyn Store>,
    news: Mutex<Option<broadcast::Sender<Change>>>,
    /// Where writes stop before they are made.
    pub before_write: Gate,
    /// Where writes stop after they were made, before anybody hears of it.
    pub after_write: Gate,
    reads: AtomicUsize,
    locks: AtomicUsize,
}

impl std::fmt::Debug for ReplicaStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaStore").finish_non_exhaustive()
    }
}

impl ReplicaStore {
    /// Makes a way to a store that has no news to give.
    #[must_use]
    pub fn silent(inner: &Arc<dyn Store>) -> Arc<Self> {
        Self::new(inner, None)
    }

    /// Makes a way to a store that gives the news of [`ReplicaStore::tell`].
    #[must_use]
    pub fn telling(inner: &Arc<dyn Store>) -> Arc<Self> {
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

    /// Tells what somebody else did.
    pub fn tell(&self, change: Change) {
        // Fails only if nobody listens.
        let _ = self.news().as_ref().map(|news| news.send(change));
    }

    /// Ends the news.
    pub fn fall_silent(&self) {
        self.news().take();
    }

    /// Returns how often the store was read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns how often a lock was asked for.
    #[must_use]
    pub fn locks(&self) -> usize {
        self.locks.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl ReadStore for ReplicaStore {
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.get(namespace, kind, key).await
    }

    async fn list(&self, namespace: &Namespace, kind: Kind, prefix: &str, page: Page) -> Result<ListPage> {
        self.inner.list(namespace, kind, prefix, page).await
    }

    async fn scan(&self, namespace: &Namespace, kind: Kind, prefix: &str, order: Order, limit: usize) -> Result<Scan> {
        self.inner.scan(namespace, kind, prefix, order, limit).await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceStats>> {
        self.inner.namespaces().await
    }

    async fn stats(&self) -> Result<Stats> {
        self.inner.stats().await
    }

    async fn generation(&self) -> Result<u64> {
        self.inner.generation().await
    }

    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk> {
        self.inner.walk(after, limit).await
    }

    fn changes(&self) -> Option<Changes> {
        self.news().as_ref().map(broadcast::Sender::subscribe)
    }
}

#[async_trait]
impl Store for ReplicaStore {
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.before_write.pass().await;
        let written = self.inner.write(batch).await;
        self.after_write.pass().await;
        written
    }

    async fn sweep_expired(&self, limit: usize) -> Result<u64> {
        self.inner.sweep_expired(limit).await
    }

    async fn trim(&self, limit: usize) -> Result<u64> {
        self.inner.trim(limit).await
    }

    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed> {
        self.inner.reseal(after, limit).await
    }

    async fn adopt_key(&self) -> Result<()> {
        self.inner.adopt_key().await
    }

    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>> {
        self.locks.fetch_add(1, Ordering::SeqCst);
        self.inner.try_lock(name, hold).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
