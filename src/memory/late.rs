//! Late store: it could not be opened at the start and opens later.
//!
//! Until then every call fails with the reason.

use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::error::{Result, StoreError};
use crate::ops::{Change, Changes};
use crate::store::{Store, StoreWrapper};

/// Changes that are kept for a slow subscriber.
const CHANGES: usize = 256;

/// One try to open the store.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// Store that opens as soon as it can.
pub(crate) struct LateStore {
    opened: OnceLock<Arc<dyn Store>>,
    trouble: Mutex<StoreError>,
    closed: AtomicBool,
    /// Sender of changes, for a store that will send them once it is open.
    changes: Option<broadcast::Sender<Change>>,
}

impl LateStore {
    /// Makes the store and, with `retry`, tries to open it until that succeeds.
    ///
    /// `sends_changes` = it will send changes.
    pub(crate) fn start(
        trouble: StoreError,
        opener: Box<dyn Fn() -> Opening + Send + Sync>,
        retry: Option<Duration>,
        sends_changes: bool,
    ) -> Arc<Self> {
        let late = Arc::new(Self {
            opened: OnceLock::new(),
            trouble: Mutex::new(trouble),
            closed: AtomicBool::new(false),
            changes: sends_changes.then(|| broadcast::channel(CHANGES).0),
        });
        if let Some(retry) = retry {
            tokio::spawn(keep_trying(Arc::downgrade(&late), opener, retry));
        }
        late
    }

    fn trouble(&self) -> StoreError {
        self.trouble.lock().clone()
    }
}

async fn keep_trying(
    late: Weak<LateStore>,
    opener: Box<dyn Fn() -> Opening + Send + Sync>,
    retry: Duration,
) {
    loop {
        tokio::time::sleep(retry).await;
        if late
            .upgrade()
            .is_none_or(|late| late.closed.load(Ordering::Acquire))
        {
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
                if let (Some(sender), Some(changes)) = (late.changes.clone(), changes) {
                    drop(late);
                    forward(changes, &sender).await;
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

/// Forwards the changes of the store until it closes or no subscriber is left.
async fn forward(mut changes: Changes, sender: &broadcast::Sender<Change>) {
    // What happened before it was open is not known.
    let mut next = Some(Change::Anything);
    loop {
        if let Some(change) = next.take()
            && sender.send(change).is_err()
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

helmdeck_core::redacted_debug!(LateStore, this => open = this.opened.get().is_some());

#[async_trait]
impl StoreWrapper for LateStore {
    fn inner(&self) -> Result<&dyn Store> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        self.opened
            .get()
            .map(|store| &**store)
            .ok_or_else(|| match self.trouble() {
                // To a caller it is a store that may come back, whatever keeps it away.
                error @ StoreError::Unavailable { .. } => error,
                error => StoreError::unavailable(error),
            })
    }

    async fn pass_close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        match self.opened.get() {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }

    fn pass_changes(&self) -> Option<Changes> {
        match (self.opened.get(), &self.changes) {
            (Some(store), _) => store.changes(),
            (None, changes) => changes.as_ref().map(broadcast::Sender::subscribe),
        }
    }

    fn pass_not_open(&self) -> Option<StoreError> {
        self.opened.get().is_none().then(|| self.trouble())
    }
}
