//! Deletes expired artifacts, and the files that crashes left.
//!
//! It touches only files that an entry of helmdeck names, so nothing else in the same bucket is
//! lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use helmdeck_core::Result;
use object_store::ObjectStore;
use object_store::path::Path as Key;

use crate::names::{NameEntry, OWNERS};
use crate::store::{ArtifactStore, Description};

/// How long a file without a description may still be in the middle of a write.
const GRACE: Duration = Duration::from_secs(86_400);
/// Limit of entries in memory.
const STEP: usize = 1000;
/// Limit of concurrent deletes.
const AT_ONCE: usize = 8;

/// What a sweep did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files that had ended.
    pub files: u64,
    /// Partial files of killed writers.
    pub halves: u64,
    /// Files that could not be deleted, and are left for the next sweep.
    pub failures: u64,
}

/// Result for one entry.
enum Fate {
    Swept,
    Half,
    Kept,
}

impl ArtifactStore {
    /// Deletes expired and partial files. A file that cannot be deleted does not stop the sweep.
    ///
    /// # Errors
    /// `artifact_failed` if the place does not list its names.
    pub async fn sweep(&self) -> Result<Swept> {
        let mut swept = self.sweep_ended().await?;
        swept.halves += self.place.remove_halves(GRACE).await;
        Ok(swept)
    }

    /// Deletes expired files. Every name is read once.
    ///
    /// # Errors
    /// As [`ArtifactStore::sweep`].
    pub async fn sweep_ended(&self) -> Result<Swept> {
        let mut swept = Swept::default();
        let Some(store) = self.existing().await? else {
            return Ok(swept);
        };
        let (now, mut kept) = (self.clock.now(), 0);
        let mut names = store.list(Some(&Key::from(OWNERS)));
        let mut ended = Vec::new();
        while let Some(object) = names.next().await {
            let object = match object {
                Ok(object) => object,
                // It was deleted while the folder was walked.
                Err(object_store::Error::NotFound { .. }) if !self.place.is_bucket() => continue,
                Err(error) => return Err(self.failed("list", error)),
            };
            match NameEntry::read(&object.location) {
                Some(entry) if entry.ends <= now => ended.push(entry),
                Some(_) => kept += 1,
                None => {}
            }
            if ended.len() >= STEP {
                self.end_all(store, std::mem::take(&mut ended), &mut swept)
                    .await;
            }
        }
        self.succeeded();
        self.end_all(store, ended, &mut swept).await;
        self.metrics.kept.set(kept);
        self.metrics.sweeps.inc();
        Ok(swept)
    }

    async fn end_all(
        &self,
        store: &Arc<dyn ObjectStore>,
        ended: Vec<NameEntry>,
        swept: &mut Swept,
    ) {
        let fates = stream::iter(ended).map(async |entry| self.end(store, &entry).await);
        let mut fates = std::pin::pin!(fates.buffer_unordered(AT_ONCE));
        while let Some(fate) = fates.next().await {
            match fate {
                Ok(Fate::Swept) => swept.files += 1,
                Ok(Fate::Half) => swept.halves += 1,
                Ok(Fate::Kept) => {}
                Err(_) => swept.failures += 1,
            }
        }
    }

    /// Deletes the objects of an expired entry.
    async fn end(&self, store: &Arc<dyn ObjectStore>, entry: &NameEntry) -> Result<Fate> {
        let now = self.clock.now();
        match self.about(store, &entry.key).await? {
            // The file may still be written, for longer than its retention. The file that it
            // replaces may still exist.
            Description::Nothing if now < entry.started.saturating_add(GRACE) => Ok(Fate::Kept),
            Description::About(about)
                if about.created_at < entry.started
                    && now < entry.started.saturating_add(GRACE) =>
            {
                Ok(Fate::Kept)
            }
            // The description is that of the file that replaced it, or that it failed to replace.
            Description::About(about) if !about.is_of(entry) => {
                self.delete_all(store, [entry.file(), entry.path()]).await?;
                Ok(Fate::Kept)
            }
            Description::Nothing => self.remove(store, entry).await.map(|()| Fate::Half),
            // An unreadable file has expired too.
            Description::About(_) | Description::Unreadable => {
                self.remove(store, entry).await.map(|()| Fate::Swept)
            }
        }
    }
}
