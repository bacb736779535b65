//! A store that could not be opened at the start and is opened later: until then every call fails with the reason.

use parking_lot::Mutex;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::entry::{Entry, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::lock::Lock;
use crate::store::{
    Change, Changes, ListPage, Mark, NamespaceStats, Op, Order, Page, ReadStore, Resealed, Scan, Stats, Store, Walk,
    Written,
};

/// How many changes are kept for a subscriber that is slow.
const CHANGES: usize = 256;

/// One try to open the store.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// A store that opens when it can.
pub(crate) struct LateStore {
    opened: OnceLock<Arc<dyn Store>>,
    trouble: Mutex<StoreError>,
    closed: AtomicBool,
    /// For a store that tells of changes: what it tells once it is open.
    changes: Option<broadcast::Sender<Change>>,
}

impl LateStore {
    /// Makes the store and, with `retry`, tries to open it again and again. `is_told` = it will tell of changes.
    pub(crate) fn start(
        trouble: StoreError,
        opener: Box<dyn Fn() -> Opening + Send + Sync>,
        retry: Option<Duration>,
        is_told: bool,
    ) -> Arc<Self> {
        let late = Arc::new(Self {
            opened: OnceLock::new(),
            trouble: Mutex::new(trouble),
            closed: AtomicBool::new(false),
            changes: is_told.then(|| broadcast::channel(CHANGES).0),
        });
        if let Some(retry) = retry {
            tokio::spawn(keep_trying(Arc::downgrade(&late), opener, retry));
        }
        late
    }

    fn trouble(&self) -> StoreError {
        self.trouble.lock().clone()
    }

    fn get(&self) -> Result<&Arc<dyn Store>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        self.opened.get().ok_or_else(|| match self.trouble() {
            // To a caller it is a store that may come back, whatever keeps it away.
            error @ StoreError::Unavailable { .. } => error,
            error => StoreError::unavailable(error),
        })
    }
}

async fn keep_trying(late: Weak<LateStore>, opener: Box<dyn Fn() -> Opening + Send + Sync>, retry: Duration) {
    loop {
        tokio::time::sleep(retry).await;
        if late.upgrade().is_none_or(|late| late.closed.load(Ordering::Acquire)) {
            return;
        }
        let opened = opener().await;
        let Some(late) = late.upgrade() else { return };
        match opened {
            Ok(store) => {
                let changes = store.changes();
                let _ = late.opened.set(Arc::clone(&store));
                if late.closed.load(Ordering::Acquire) {
                    let _ = store.close().await;
                    return;
                }
                tracing::info!("the store is open now; answers are cached from here on");
                if let (Some(told), Some(changes)) = (late.changes.clone(), changes) {
                    drop(late);
                    forward(changes, &told).await;
                }
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "the store still cannot be opened");
                *late.trouble.lock() = error;
            }
        }
    }
}

/// Passes on what the store tells, until it ends or nobody listens.
async fn forward(mut changes: Changes, told: &broadcast::Sender<Change>) {
    // What happened before it was open is not known.
    let mut next = Some(Change::Anything);
    loop {
        if let Some(change) = next.take()
            && told.send(change).is_err()
        {
            return;
        }
        next = match changes.recv().await {
            Ok(change) => Some(change),
            Err(RecvError::Lagged(_)) => Some(Change::Anything),
            Err(RecvError::Closed) => return,
        };
    }
}

impl fmt::Debug for LateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateStore").field("open", &self.opened.get().is_some()).finish_non_exhaustive()
    }
}

#[async_trait]
impl ReadStore for LateStore {
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>> {
        self.get()?.get(namespace, kind, key).await
    }

    async fn list(&self, namespace: &Namespace, kind: Kind, prefix: &str, page: Page) -> Result<ListPage> {
        self.get()?.list(namespace, kind, prefix, page).await
    }

    async fn scan(&self, namespace: &Namespace, kind: Kind, prefix: &str, order: Order, limit: usize) -> Result<Scan> {
        self.get()?.scan(namespace, kind, prefix, order, limit).await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceStats>> {
        self.get()?.namespaces().await
    }

    async fn stats(&self) -> Result<Stats> {
        self.get()?.stats().await
    }

    async fn generation(&self) -> Result<u64> {
        self.get()?.generation().await
    }

    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk> {
        self.get()?.walk(after, limit).await
    }

    fn changes(&self) -> Option<Changes> {
        match (self.opened.get(), &self.changes) {
            (Some(store), _) => store.changes(),
            (None, changes) => changes.as_ref().map(broadcast::Sender::subscribe),
        }
    }

    fn not_open(&self) -> Option<StoreError> {
        self.opened.get().is_none().then(|| self.trouble())
    }
}

#[async_trait]
impl Store for LateStore {
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.get()?.write(batch).await
    }

    async fn sweep_expired(&self, limit: usize) -> Result<u64> {
        self.get()?.sweep_expired(limit).await
    }

    async fn trim(&self, limit: usize) -> Result<u64> {
        self.get()?.trim(limit).await
    }

    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed> {
        self.get()?.reseal(after, limit).await
    }

    async fn adopt_key(&self) -> Result<()> {
        self.get()?.adopt_key().await
    }

    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>> {
        self.get()?.try_lock(name, hold).await
    }

    async fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        match self.opened.get() {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }
}
