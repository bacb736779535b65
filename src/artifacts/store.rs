//! Artifact store: reads, checks and describes files.
//!
//! Only the owner can read an artifact. Everyone else gets `not_found`.

use parking_lot::Mutex;
use std::sync::Arc;

use helmdeck_core::{ArtifactRef, Clock, Code, Error, Identity, Result, Timestamp};
use object_store::{ObjectStore, ObjectStoreExt};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde::{Deserialize, Serialize};

use crate::config::ArtifactConfig;
use crate::names;
use crate::place::ArtifactBackend;

/// Size limit of one description. Those of helmdeck take less than 1 KiB.
const MAX_ABOUT_BYTES: u64 = 64 << 10;

/// Store of artifacts.
pub struct ArtifactStore {
    pub(crate) place: ArtifactBackend,
    pub(crate) config: ArtifactConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: ArtifactMetrics,
    /// Error of the last request to the backend, until one succeeds.
    pub(crate) trouble: Mutex<Option<String>>,
}

helmdeck_core::redacted_debug!(ArtifactStore, this => place = this.place.shown());

helmdeck_core::metrics! {
    /// Metrics of artifacts.
    #[derive(Debug, Default)]
    pub struct ArtifactMetrics {
        pub(crate) stored: Counter = "artifacts_stored" "Files that packs wrote";
        pub(crate) stored_bytes: Counter = "artifacts_stored" [Bytes] "What the files that packs wrote take";
        pub(crate) deleted: Counter =
            "artifacts_deleted" "Files that their owner or an administrator deleted, or that went with what was forgotten";
        pub(crate) failures: Family<[(&'static str, &'static str); 1], Counter> =
            "artifact_failures" "Requests to the place of files that failed, by operation";
        pub(crate) kept: Gauge = "artifacts_kept" "Files kept, at the last sweep";
        pub(crate) sweeps: Counter = "artifact_sweeps" "Sweeps of the place of files that came to their end";
    }
}

impl ArtifactMetrics {
    pub(crate) fn failed(&self, operation: &'static str) {
        self.failures
            .get_or_create(&[("operation", operation)])
            .inc();
    }
}

/// Description of an artifact, stored beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) artifact: ArtifactRef,
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// Start time of the write.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub(crate) created_at: Timestamp,
}

/// Result of a read of a description.
pub(crate) enum Description {
    /// None exists.
    Nothing,
    /// It cannot be parsed.
    Unreadable,
    /// It exists.
    About(Box<About>),
}

impl About {
    pub(crate) fn new(artifact: ArtifactRef, owner: &Identity, created_at: Timestamp) -> Self {
        Self {
            artifact,
            tenant: owner.tenant().to_owned(),
            user: owner.user().to_owned(),
            created_at,
        }
    }

    /// Returns whether an entry belongs to this artifact, and not to an older or newer one of the
    /// same key.
    pub(crate) fn is_of(&self, entry: &names::NameEntry) -> bool {
        self.artifact.expires_at == entry.ends && self.created_at == entry.started
    }
}

/// Cause of the error of a damaged artifact. The backend itself works.
#[derive(Debug)]
struct Damaged;

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the file is not what was written")
    }
}

impl std::error::Error for Damaged {}

/// Returns whether an `artifact_failed` is permanent because the artifact is damaged.
///
/// If not, the backend failed.
#[must_use]
pub fn is_damaged(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Damaged>())
}

pub(crate) fn no_artifact() -> Error {
    Error::new(Code::NotFound, "there is no such artifact")
}

impl ArtifactStore {
    /// Makes a store over a backend.
    #[must_use]
    pub fn new(
        place: ArtifactBackend,
        config: ArtifactConfig,
        clock: Arc<dyn Clock>,
        metrics: ArtifactMetrics,
    ) -> Self {
        Self {
            place,
            config,
            clock,
            metrics,
            trouble: Mutex::default(),
        }
    }

    /// Returns whether the backend is a bucket.
    pub const fn is_bucket(&self) -> bool {
        self.place.is_bucket()
    }

    /// Returns the error of the last request to the backend, if it failed.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Returns the object store; `None` before the first write.
    pub(crate) async fn existing(&self) -> Result<Option<&Arc<dyn ObjectStore>>> {
        self.place
            .existing()
            .await
            .map_err(|error| self.failed("open", error))
    }

    /// Makes a redacted error of a failure of the backend, and counts it.
    pub(crate) fn failed(
        &self,
        operation: &'static str,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        self.metrics.failed(operation);
        let done = match operation {
            "store" => "stored in",
            "read" => "read from",
            "list" => "listed in",
            "delete" => "deleted in",
            _ => "reached in",
        };
        let place = self.place.shown();
        *self.trouble.lock() = Some(format!("{place} does not answer as it should"));
        let error = Error::new(
            Code::ArtifactFailed,
            format!("an artifact cannot be {done} {place}"),
        )
        .with_source(error);
        helmdeck_redact::error(error, self.place.hidden())
    }

    pub(crate) fn succeeded(&self) {
        self.trouble.lock().take();
    }

    /// Checks whether the backend can be reached, by listing one name. Changes nothing.
    ///
    /// # Errors
    /// `artifact_failed` if not.
    pub async fn reach(&self) -> Result<()> {
        let Some(store) = self.existing().await? else {
            return Ok(());
        };
        self.first_name(store).await
    }

    pub(crate) async fn first_name(&self, store: &Arc<dyn ObjectStore>) -> Result<()> {
        use futures_util::StreamExt;

        match store.list(Some(&names::OWNERS.into())).next().await {
            Some(Err(error)) => Err(self.failed("list", error)),
            _ => {
                self.succeeded();
                Ok(())
            }
        }
    }

    /// Writes a small object, reads it back and deletes it.
    ///
    /// # Errors
    /// `artifact_failed` with what does not work.
    pub async fn probe(&self) -> Result<()> {
        let store = self
            .place
            .ready()
            .await
            .map_err(|error| self.failed("open", error))?;
        let name: object_store::path::Path =
            format!("probe/{}", helmdeck_core::RunId::next(self.clock.now())).into();
        let text = name.as_ref().as_bytes().to_vec();
        store
            .put(&name, text.clone().into())
            .await
            .map_err(|error| self.failed("store", error))?;
        let read = async { store.get(&name).await?.bytes().await };
        let read = read.await.map_err(|error| self.failed("read", error));
        let deleted = store
            .delete(&name)
            .await
            .map_err(|error| self.failed("delete", error));
        if read? != text {
            return Err(self.failed("read", "what was written is not what was read"));
        }
        deleted?;
        self.succeeded();
        Ok(())
    }

    /// Reads the description of an artifact.
    pub(crate) async fn about(
        &self,
        store: &Arc<dyn ObjectStore>,
        key: &str,
    ) -> Result<Description> {
        let Some(place) = names::about(key) else {
            return Ok(Description::Nothing);
        };
        let object = match store.get(&place).await {
            Ok(object) => object,
            Err(object_store::Error::NotFound { .. }) => {
                // A deleted bucket answers like a missing object.
                if self.place.is_bucket() {
                    self.first_name(store).await?;
                }
                return Ok(Description::Nothing);
            }
            Err(error) => return Err(self.failed("read", error)),
        };
        if object.meta.size > MAX_ABOUT_BYTES {
            return Ok(Description::Unreadable);
        }
        let bytes = object
            .bytes()
            .await
            .map_err(|error| self.failed("read", error))?;
        self.succeeded();
        Ok(match serde_json::from_slice::<About>(&bytes) {
            Ok(about) if about.artifact.key == key => Description::About(Box::new(about)),
            _ => Description::Unreadable,
        })
    }

    /// Reads the description of an artifact that has not expired.
    ///
    /// It must belong to this owner; without an owner, it may belong to any caller.
    pub(crate) async fn live(&self, owner: Option<&Identity>, key: &str) -> Result<About> {
        let store = self.existing().await?.ok_or_else(no_artifact)?;
        let about = match self.about(store, key).await? {
            Description::About(about) => *about,
            Description::Nothing => return Err(no_artifact()),
            // Its owner is unknown.
            Description::Unreadable if owner.is_some() => return Err(no_artifact()),
            Description::Unreadable => {
                return Err(self.damaged("what is known of it cannot be read"));
            }
        };
        let owned =
            owner.is_none_or(|owner| about.tenant == owner.tenant() && about.user == owner.user());
        if !owned || self.clock.now() >= about.artifact.expires_at {
            return Err(no_artifact());
        }
        Ok(about)
    }

    /// Returns the error for a damaged file. The backend itself works.
    pub(crate) fn damaged(&self, how: &str) -> Error {
        self.metrics.failed("read");
        Error::new(
            Code::ArtifactFailed,
            format!("the artifact is damaged: {how}"),
        )
        .with_source(Damaged)
    }

    /// Returns whether all of these files still exist as they were described: with this digest, and
    /// of this size.
    ///
    /// What is in them is compared with the digest when they are read, not here.
    pub async fn all_exist(&self, artifacts: &[ArtifactRef]) -> bool {
        let Ok(Some(store)) = self.existing().await else {
            return artifacts.is_empty();
        };
        for artifact in artifacts {
            if self.clock.now() >= artifact.expires_at || !self.is_there(store, artifact).await {
                return false;
            }
        }
        true
    }

    async fn is_there(&self, store: &Arc<dyn ObjectStore>, artifact: &ArtifactRef) -> bool {
        let Ok(Description::About(about)) = self.about(store, &artifact.key).await else {
            return false;
        };
        let Some(file) = names::file(&artifact.key, about.created_at) else {
            return false;
        };
        about.artifact == *artifact
            && store
                .head(&file)
                .await
                .is_ok_and(|meta| meta.size == artifact.size)
    }
}
