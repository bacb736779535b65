//! Store with counters and fault injection.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use helmdeck_memory::{Access, Op, Result, Store, StoreError, StoreWrapper, Written};

const NEVER: i64 = i64::MAX;

/// A store as one process sees it. Once cut, the process is dead as far as the store knows.
#[derive(Clone)]
pub(crate) struct FaultyStore(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Number of writes until everything fails.
    left: AtomicI64,
    /// Number of next writes that fail without effect.
    failing: AtomicI64,
    /// Number of next writes that succeed and return an error.
    unheard: AtomicI64,
    /// Number of next reads that fail.
    blind: AtomicI64,
}

fn gone() -> StoreError {
    StoreError::Unavailable {
        message: "told to fail".to_owned(),
        source: None,
    }
}

/// Decrements a counter; `false` if it is 0.
fn take(counter: &AtomicI64) -> bool {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            (left > 0).then(|| left - 1)
        })
        .is_ok()
}

impl FaultyStore {
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

    /// Lets `writes` more writes through; then everything fails.
    pub(crate) fn cut_after(&self, writes: i64) {
        self.0.left.store(writes, Ordering::SeqCst);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.0.left.load(Ordering::SeqCst) <= 0
    }

    /// Makes the next writes fail without effect.
    pub(crate) fn fail_writes(&self, count: i64) {
        self.0.failing.store(count, Ordering::SeqCst);
    }

    /// Makes the next writes succeed and return an error.
    pub(crate) fn lose_answers(&self, count: i64) {
        self.0.unheard.store(count, Ordering::SeqCst);
    }

    /// Makes the next reads fail.
    pub(crate) fn fail_reads(&self, count: i64) {
        self.0.blind.store(count, Ordering::SeqCst);
    }

    fn reading(&self) -> Result<&dyn Store> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        if self.is_cut() || take(&self.0.blind) {
            Err(gone())
        } else {
            Ok(&*self.0.store)
        }
    }
}

#[async_trait]
impl StoreWrapper for FaultyStore {
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
        // A process that dies during its last write gets no answer.
        if take(&self.0.unheard) || self.is_cut() {
            return Err(gone());
        }
        written
    }

    async fn pass_close(&self) -> Result<()> {
        Ok(())
    }
}
