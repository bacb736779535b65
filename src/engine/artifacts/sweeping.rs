//! Deletes files that have ended, and what crashes left. Only what an entry of ours names is touched, so nothing else in the same
//! bucket is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use helmdeck_core::Result;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};

use super::names::{Entry, OWNERS};
use super::{ArtifactStore, Known};

/// How long a file without anything known of it may still be in the middle of being written.
const GRACE: Duration = Duration::from_secs(86_400);
/// How many entries are held in memory.
const STEP: usize = 1000;
/// How many files are deleted at a time.
const AT_ONCE: usize = 8;

/// What a sweep did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Files that had ended.
    pub(crate) files: u64,
    /// What writers left that were killed.
    pub(crate) halves: u64,
    /// What could not be deleted, and is left for the next sweep.
    pub(crate) failures: u64,
}

/// What became of one entry.
enum Fate {
    Swept,
    Half,
    Kept,
}

impl ArtifactStore {
    /// Deletes files that have ended. One that cannot be deleted does not stop the others.
    ///
    /// # Errors
    /// `artifact_failed` if the place does not list its names.
    pub(crate) async fn sweep(&self) -> Result<Swept> {
        let mut swept = Swept::default();
        let Some(store) = self.existing()? else { return Ok(swept) };
        let (folder, now) = (Key::from(OWNERS), self.clock.now());
        let kept = std::sync::atomic::AtomicI64::new(0);
        let has_ended = |entry: &Entry| {
            let ended = entry.ends <= now;
            if !ended {
                kept.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            ended
        };
        let mut after: Option<Key> = None;
        loop {
            // What is counted is what is left after the last page; a bucket is read once, a folder from its start each time.
            if after.is_none() || !self.place.is_bucket() {
                kept.store(0, std::sync::atomic::Ordering::Relaxed);
            }
            let (ended, more) = self.entries(store, &folder, after.as_ref(), STEP, has_ended).await?;
            after = ended.keys().next_back().cloned();
            let fates = stream::iter(ended.into_values()).map(async |entry| self.end(store, &entry).await);
            let fates: Vec<_> = fates.buffer_unordered(AT_ONCE).collect().await;
            for fate in fates {
                match fate {
                    Ok(Fate::Swept) => swept.files += 1,
                    Ok(Fate::Half) => swept.halves += 1,
                    Ok(Fate::Kept) => {}
                    Err(_) => swept.failures += 1,
                }
            }
            if !more {
                break;
            }
        }
        swept.halves += self.place.remove_halves(GRACE).await;
        self.metrics.kept.set(kept.into_inner());
        self.metrics.sweeps.inc();
        Ok(swept)
    }

    /// Deletes what belongs to an entry whose time is over.
    async fn end(&self, store: &Arc<dyn ObjectStore>, entry: &Entry) -> Result<Fate> {
        let now = self.clock.now();
        match self.about(store, &entry.key).await? {
            // The file was replaced by one that lives on; only the entry of the earlier one is left.
            Known::About(about) if now < about.artifact.expires_at => {
                if let Some(path) = entry.path() {
                    store.delete(&path).await.map_err(|error| self.failed("delete", error))?;
                }
                Ok(Fate::Kept)
            }
            // It may still be written: a file may take longer than it is to be kept.
            Known::Nothing if now < entry.started.saturating_add(GRACE) => Ok(Fate::Kept),
            Known::Nothing => self.remove(store, entry).await.map(|()| Fate::Half),
            // What cannot be read has ended all the same.
            Known::About(_) | Known::Unreadable => self.remove(store, entry).await.map(|()| Fate::Swept),
        }
    }
}
