//! A way to a store that counts what goes through it, and fails when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use helmdeck_memory::{Access, Op, Result, Store, StoreError, StoreWrapper, Written};

const NEVER: i64 = i64::MAX;

/// A way to a store. What one process does goes through one tap; when it is cut, the process has died as far as the store knows.
#[derive(Clone)]
pub(crate) struct Tap(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    reads: AtomicU64,
    writes: AtomicU64,
    /// How many more writes are let through before all fails.
    left: AtomicI64,
    /// How many of the next writes fail, undone.
    failing: AtomicI64,
    /// How many of the next writes are done, and said to have failed.
    unheard: AtomicI64,
    /// Whether reads fail.
    blind: AtomicI64,
}

fn gone() -> StoreError {
    StoreError::Unavailable { message: "told to fail".to_owned(), source: None }
}

/// Takes one from a counter; `false` if it is at 0.
fn take(counter: &AtomicI64) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left > 0).then(|| left - 1)).is_ok()
}

impl Tap {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self(Arc::new(Inner {
            store: Arc::clone(store),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            left: AtomicI64::new(NEVER),
            failing: AtomicI64::new(0),
            unheard: AtomicI64::new(0),
            blind: AtomicI64::new(0),
        }))
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    pub(crate) fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::SeqCst)
    }

    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::SeqCst)
    }

    /// Lets so many more writes through; then nothing works any more.
    pub(crate) fn cut_after(&self, writes: i64) {
        self.0.left.store(writes, Ordering::SeqCst);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.0.left.load(Ordering::SeqCst) <= 0
    }

    /// Lets the next writes fail, undone.
    pub(crate) fn fail_writes(&self, count: i64) {
        self.0.failing.store(count, Ordering::SeqCst);
    }

    /// Does the next writes, and says that they failed.
    pub(crate) fn lose_answers(&self, count: i64) {
        self.0.unheard.store(count, Ordering::SeqCst);
    }

    /// Lets the next reads fail.
    pub(crate) fn fail_reads(&self, count: i64) {
        self.0.blind.store(count, Ordering::SeqCst);
    }

    fn reading(&self) -> Result<&dyn Store> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        if self.is_cut() || take(&self.0.blind) { Err(gone()) } else { Ok(&*self.0.store) }
    }
}

#[async_trait]
impl StoreWrapper for Tap {
    fn inner(&self) -> Result<&dyn Store> {
        Ok(&*self.0.store)
    }

    async fn target(&self, access: Access) -> Result<&dyn Store> {
        match access {
            Access::Get | Access::Scan | Access::Read => self.reading(),
            Access::Lock if self.is_cut() => Err(gone()),
            Access::Lock | Access::Maintain | Access::Write => self.inner(),
        }
    }

    async fn pass_write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.0.writes.fetch_add(1, Ordering::SeqCst);
        if take(&self.0.failing) {
            return Err(gone());
        }
        if self.0.left.load(Ordering::SeqCst) != NEVER && !take(&self.0.left) {
            return Err(gone());
        }
        let written = self.0.store.write(batch).await;
        // A process that dies of its last write does not hear of it.
        if take(&self.0.unheard) || self.is_cut() {
            return Err(gone());
        }
        written
    }

    async fn pass_close(&self) -> Result<()> {
        Ok(())
    }
}
