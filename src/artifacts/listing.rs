//! Lists and deletes artifacts, of one owner or of all.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use helmdeck_core::{ArtifactRef, Code, Error, Identity, PackName, Result, Timestamp};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::Serialize;

use crate::names::{self, NameEntry, OWNERS};
use crate::store::{ArtifactStore, Description, no_artifact};

/// Concurrent requests of one list.
const AT_ONCE: usize = 8;
/// Entries deleted per listing.
const STEP: usize = 500;
/// Limit of listings while artifacts are still being written.
const LOOKS: usize = 1000;

/// An artifact and its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedArtifact {
    /// The artifact.
    #[serde(flatten)]
    pub artifact: ArtifactRef,
    /// Start time of the write.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub created_at: Timestamp,
    /// The tenant of its owner.
    pub tenant: String,
    /// The user who owns it.
    pub user: String,
}

/// A page of a list of artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArtifactPage {
    /// The artifacts: of one owner newest first, of all grouped by owner.
    pub artifacts: Vec<ListedArtifact>,
    /// Cursor of the next page; `None` = this is the last.
    ///
    /// A page can hold fewer artifacts than requested, even none, and still have a next one.
    pub next: Option<String>,
}

impl ArtifactStore {
    /// Returns the first entries by name below a folder and after a name.
    ///
    /// It returns at most `limit` entries, and whether there are more.
    pub(super) async fn entries(
        &self,
        store: &Arc<dyn ObjectStore>,
        folder: &Key,
        after: Option<&Key>,
        limit: usize,
        keep: impl Fn(&NameEntry) -> bool,
    ) -> Result<(BTreeMap<Key, NameEntry>, bool)> {
        let mut names = match after {
            Some(after) => store.list_with_offset(Some(folder), after),
            None => store.list(Some(folder)),
        };
        let (mut found, mut more) = (BTreeMap::new(), false);
        while let Some(object) = names.next().await {
            let object = match object {
                Ok(object) => object,
                // It was deleted in the meantime.
                Err(object_store::Error::NotFound { .. }) if !self.place.is_bucket() => continue,
                Err(error) => return Err(self.failed("list", error)),
            };
            let Some(entry) = NameEntry::read(&object.location).filter(|entry| keep(entry)) else {
                continue;
            };
            found.insert(object.location, entry);
            if found.len() > limit {
                // A local folder is walked in no order: keep the first names and drop the last.
                found.pop_last();
                more = true;
                if self.place.is_bucket() {
                    break;
                }
            }
        }
        self.succeeded();
        Ok((found, more))
    }

    /// Returns the artifacts of an owner that have not expired; without an owner, those of all.
    ///
    /// It reads all names of the owner in a local folder, only those of the page in a bucket, and
    /// the descriptions of the page.
    ///
    /// # Errors
    /// `invalid_input` if `after` comes from no page, `artifact_failed` if the backend does not
    /// answer.
    pub async fn list(
        &self,
        owner: Option<&Identity>,
        pack: Option<&PackName>,
        limit: usize,
        after: Option<&str>,
    ) -> Result<ArtifactPage> {
        let folder = match owner {
            Some(owner) => format!("{OWNERS}/{}", names::owner(owner.tenant(), owner.user())),
            None => OWNERS.to_owned(),
        };
        let after = after.map(|after| cursor(&folder, after)).transpose()?;
        let Some(store) = self.existing().await? else {
            return Ok(ArtifactPage {
                artifacts: Vec::new(),
                next: None,
            });
        };
        let now = self.clock.now();
        let keep = |entry: &NameEntry| {
            now < entry.ends && pack.is_none_or(|pack| pack.as_str() == entry.pack())
        };
        let (found, more) = self
            .entries(
                store,
                &Key::from(folder.as_str()),
                after.as_ref(),
                limit,
                keep,
            )
            .await?;
        let last = found.keys().next_back().filter(|_| more);
        let next = last
            .and_then(|last| last.as_ref().strip_prefix(&folder))
            .map(|rest| rest[1..].to_owned());
        let read = stream::iter(found.into_values())
            .map(async |entry| (self.about(store, &entry.key).await, entry));
        let read: Vec<_> = read.buffered(AT_ONCE).collect().await;
        let mut artifacts = Vec::with_capacity(read.len());
        for (about, entry) in read {
            // Incomplete, deleted or damaged: skip it and show the others.
            let Description::About(about) = about? else {
                continue;
            };
            // The entry of a replaced artifact has another start time.
            if about.is_of(&entry) && names::owner(&about.tenant, &about.user) == entry.owner {
                let (created_at, artifact) = (about.created_at, about.artifact);
                artifacts.push(ListedArtifact {
                    artifact,
                    created_at,
                    tenant: about.tenant,
                    user: about.user,
                });
            }
        }
        Ok(ArtifactPage { artifacts, next })
    }

    /// Deletes an artifact of this owner; without an owner, of any caller.
    ///
    /// # Errors
    /// `not_found` if it does not exist, or belongs to another caller; `artifact_failed` if it
    /// cannot be deleted.
    pub async fn delete(&self, owner: Option<&Identity>, key: &str) -> Result<()> {
        let about = self.live(owner, key).await?;
        let store = self.existing().await?.ok_or_else(no_artifact)?;
        let entry = NameEntry {
            owner: names::owner(&about.tenant, &about.user),
            key: key.to_owned(),
            ends: about.artifact.expires_at,
            started: about.created_at,
        };
        self.remove(store, &entry).await?;
        self.metrics.deleted.inc();
        self.succeeded();
        Ok(())
    }

    /// Deletes an artifact by its entry: its description first, the entry last.
    ///
    /// After a crash in between, the next sweep finds the rest.
    pub(super) async fn remove(
        &self,
        store: &Arc<dyn ObjectStore>,
        entry: &NameEntry,
    ) -> Result<()> {
        self.delete_all(
            store,
            [names::about(&entry.key), entry.file(), entry.path()],
        )
        .await
    }

    /// Deletes objects one after the other. A missing object is no error.
    pub(super) async fn delete_all<const N: usize>(
        &self,
        store: &Arc<dyn ObjectStore>,
        objects: [Option<Key>; N],
    ) -> Result<()> {
        for object in objects.into_iter().flatten() {
            match store.delete(&object).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed("delete", error)),
            }
        }
        Ok(())
    }

    /// Deletes all artifacts of a caller and returns how many.
    ///
    /// A write in progress fails when it finds its entry gone.
    ///
    /// # Errors
    /// `artifact_failed` if the backend does not answer. Deleted artifacts stay deleted.
    pub async fn forget(&self, tenant: &str, user: &str) -> Result<u64> {
        let Some(store) = self.existing().await? else {
            return Ok(0);
        };
        let folder = Key::from(format!("{OWNERS}/{}", names::owner(tenant, user)));
        let mut forgotten = 0;
        for _ in 0..LOOKS {
            let (found, _) = self.entries(store, &folder, None, STEP, |_| true).await?;
            if found.is_empty() {
                return Ok(forgotten);
            }
            for entry in found.values() {
                self.remove(store, entry).await?;
                // A writer that finished in the meantime has seen its entry, if its last write came
                // before the delete of the entry.
                self.delete_all(store, [names::about(&entry.key), entry.file()])
                    .await?;
                forgotten += 1;
                self.metrics.deleted.inc();
            }
        }
        Err(Error::new(
            Code::ArtifactFailed,
            "files kept being written while they were deleted; try again",
        ))
    }
}

fn cursor(folder: &str, after: &str) -> Result<Key> {
    let wrong = || {
        Error::new(
            Code::InvalidInput,
            "\"after\" is not the \"next\" of an earlier page",
        )
    };
    let key = Key::parse(format!("{folder}/{after}")).map_err(|_| wrong())?;
    if NameEntry::read(&key).is_some() {
        Ok(key)
    } else {
        Err(wrong())
    }
}
