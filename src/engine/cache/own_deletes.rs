//! Counts the deletes by this process, to tell them from those of other processes.

use std::sync::atomic::{AtomicI64, Ordering};

use helmdeck_memory::Result;
use tokio::sync::Semaphore;

/// Counter of the deletes by this process.
///
/// The generation of the store counts them too, but they are not remote invalidations.
pub(crate) struct OwnDeletes {
    count: AtomicI64,
    /// One permit: this process makes one delete at a time.
    turn: Semaphore,
}

impl Default for OwnDeletes {
    fn default() -> Self {
        Self {
            count: AtomicI64::new(0),
            turn: Semaphore::new(1),
        }
    }
}

impl OwnDeletes {
    /// Runs a write that deletes, one at a time. The generation of the store grows by one for each.
    pub(crate) async fn run<T>(&self, write: impl Future<Output = Result<T>>) -> Result<T> {
        let turn = self.turn.acquire().await;
        self.count.fetch_add(1, Ordering::AcqRel);
        let mut counted = Counted {
            own: self,
            done: false,
        };
        let written = write.await;
        counted.done = written.is_ok();
        drop((counted, turn));
        written
    }

    /// Reads the generation for the first time, while this process deletes nothing: it includes all
    /// its deletes so far.
    pub(super) async fn begin(&self, reading: impl Future<Output = Result<u64>>) -> Result<u64> {
        let _turn = self.turn.acquire().await;
        let generation = reading.await?;
        self.count.store(0, Ordering::Release);
        Ok(generation)
    }

    /// Returns whether another process deleted something between two readings of the generation.
    pub(super) fn others_deleted(&self, before: u64, now: u64) -> bool {
        let grown = i64::try_from(now.wrapping_sub(before)).unwrap_or(i64::MAX);
        // Below zero: a delete of another process was counted as one of this process, which then
        // failed.
        let known = self.count.load(Ordering::Acquire).min(grown);
        self.count.fetch_sub(known, Ordering::AcqRel);
        grown != known
    }
}

/// Counts a delete as this process's own, unless it failed or was cancelled.
///
/// In that case it may be another process's.
struct Counted<'a> {
    own: &'a OwnDeletes,
    done: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.own.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
