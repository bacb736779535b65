//! Files that packs write: kept under `<pack>/<run id>/<name>`, with what is known of them beside, for a limited time.
//!
//! Only the owner may read a file; whoever is not is told that there is none.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use helmdeck_core::context::{Artifacts, CallSecrets};
use helmdeck_core::{ArtifactRef, Clock, Code, Error, Identity, Manifest, Result, RunId, Timestamp};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::ArtifactConfig;
use crate::scrub;

/// The folder of what is known about files, beside the files' own.
const ABOUT: &str = "about";
const FILES: &str = "files";
const MAX_NAME_BYTES: usize = 128;

/// Where files are kept.
pub(crate) struct ArtifactStore {
    folder: PathBuf,
    /// Opened by the first write, or by the first read that finds the folder there.
    opened: OnceLock<Arc<dyn ObjectStore>>,
    config: ArtifactConfig,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for ArtifactStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArtifactStore").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// What is known of a file: stored beside it.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    artifact: ArtifactRef,
    tenant: String,
    user: String,
}

impl ArtifactStore {
    /// Keeps files in a local folder, which the first file creates.
    #[must_use]
    pub(crate) fn local(folder: &Path, config: ArtifactConfig, clock: Arc<dyn Clock>) -> Self {
        Self { folder: folder.to_owned(), opened: OnceLock::new(), config, clock }
    }

    /// Returns the store, `None` as long as nothing was ever written.
    fn existing(&self) -> Result<Option<&Arc<dyn ObjectStore>>> {
        if self.opened.get().is_none() && self.folder.is_dir() {
            let local = LocalFileSystem::new_with_prefix(&self.folder).map_err(|error| failed("read", error))?;
            let _ = self.opened.set(Arc::new(local.with_automatic_cleanup(true)));
        }
        Ok(self.opened.get())
    }

    /// Returns the store, and makes its folder (mode 0700) if it is not there.
    async fn ready(&self) -> Result<&Arc<dyn ObjectStore>> {
        if self.opened.get().is_none() {
            let folder = self.folder.clone();
            let make = move || std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            let made = tokio::task::spawn_blocking(make).await;
            made.map_err(|error| failed("stored", error))?.map_err(|error| failed("stored", error))?;
        }
        self.existing()?.ok_or_else(|| Error::new(Code::ArtifactFailed, "the artifact folder cannot be made"))
    }

    /// Stores a file.
    ///
    /// # Errors
    /// `too_large` over the size cap, `artifact_failed` if it cannot be stored.
    async fn put(
        &self,
        owner: &Identity,
        key: &str,
        name: &str,
        media_type: &str,
        bytes: Bytes,
        retention: Duration,
    ) -> Result<ArtifactRef> {
        if bytes.len() as u64 > self.config.max_bytes {
            let message = format!("the file is {} bytes, the limit is {}", bytes.len(), self.config.max_bytes);
            return Err(Error::new(Code::TooLarge, message));
        }
        let artifact = ArtifactRef {
            key: key.to_owned(),
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            size: bytes.len() as u64,
            sha256: hex(&Sha256::digest(&bytes)),
            expires_at: self.clock.now().saturating_add(retention),
        };
        let about = About { artifact, tenant: owner.tenant().to_owned(), user: owner.user().to_owned() };
        let text = serde_json::to_vec(&about).map_err(|error| failed("stored", error))?;
        // The file first: what is known of it makes it visible.
        let store = self.ready().await?;
        store.put(&place(FILES, key)?, bytes.into()).await.map_err(|error| failed("stored", error))?;
        store.put(&place(ABOUT, key)?, text.into()).await.map_err(|error| failed("stored", error))?;
        Ok(about.artifact)
    }

    /// Returns a file of this owner, or without one a file of anybody.
    ///
    /// # Errors
    /// `not_found` if there is none, if it has ended, or if it is somebody else's; `artifact_failed` if it is damaged or
    /// cannot be read.
    pub(crate) async fn get(&self, owner: Option<&Identity>, key: &str) -> Result<(ArtifactRef, Bytes)> {
        let none = || Error::new(Code::NotFound, "there is no such artifact");
        let about = self.about(key).await?.ok_or_else(none)?;
        let owned = owner.is_none_or(|owner| about.tenant == owner.tenant() && about.user == owner.user());
        if !owned || self.clock.now() >= about.artifact.expires_at {
            return Err(none());
        }
        let store = self.existing()?.ok_or_else(none)?;
        let file = match store.get(&place(FILES, key)?).await {
            Ok(file) => file.bytes().await.map_err(|error| failed("read", error))?,
            Err(object_store::Error::NotFound { .. }) => return Err(none()),
            Err(error) => return Err(failed("read", error)),
        };
        if hex(&Sha256::digest(&file)) != about.artifact.sha256 {
            return Err(Error::new(Code::ArtifactFailed, "the artifact is damaged: its digest has changed"));
        }
        Ok((about.artifact, file))
    }

    /// Says whether all of these files are still there.
    pub(crate) async fn all_exist(&self, artifacts: &[ArtifactRef]) -> bool {
        let Ok(Some(store)) = self.existing() else { return artifacts.is_empty() };
        for artifact in artifacts {
            let there = match place(FILES, &artifact.key) {
                Ok(key) => store.head(&key).await.is_ok(),
                Err(_) => false,
            };
            if !there || self.clock.now() >= artifact.expires_at {
                return false;
            }
        }
        true
    }

    /// Deletes files that have ended, and says how many. One that cannot be deleted does not stop the others.
    pub(crate) async fn sweep(&self) -> u64 {
        let mut swept = 0;
        let Ok(Some(store)) = self.existing() else { return 0 };
        let listed: Vec<_> = store.list(Some(&Key::from(ABOUT))).try_collect().await.unwrap_or_default();
        for object in listed {
            let Some(key) = object.location.as_ref().strip_prefix(ABOUT).map(|key| key.trim_start_matches('/')) else {
                continue;
            };
            let Ok(Some(about)) = self.about(key).await else { continue };
            if self.clock.now() < about.artifact.expires_at {
                continue;
            }
            // What is known goes last: until then the file is found again by the next sweep.
            if let Ok(file) = place(FILES, key)
                && matches!(store.delete(&file).await, Ok(()) | Err(object_store::Error::NotFound { .. }))
                && store.delete(&object.location).await.is_ok()
            {
                swept += 1;
            }
        }
        swept
    }

    async fn about(&self, key: &str) -> Result<Option<About>> {
        let Ok(place) = place(ABOUT, key) else { return Ok(None) };
        let Some(store) = self.existing()? else { return Ok(None) };
        match store.get(&place).await {
            Ok(object) => {
                let bytes = object.bytes().await.map_err(|error| failed("read", error))?;
                serde_json::from_slice(&bytes).map(Some).map_err(|error| failed("read", error))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("read", error)),
        }
    }
}

fn place(folder: &str, key: &str) -> Result<Key> {
    Key::parse(format!("{folder}/{key}")).map_err(|error| failed("addressed", error))
}

fn failed(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Code::ArtifactFailed, format!("the artifact cannot be {what}")).with_source(error)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Collects the files of one run.
pub(crate) struct Collector {
    store: Arc<ArtifactStore>,
    prefix: String,
    retention: Duration,
    owner: Identity,
    secrets: Option<Arc<dyn CallSecrets>>,
    written: Mutex<Vec<ArtifactRef>>,
}

impl Collector {
    pub(crate) fn new(
        store: Arc<ArtifactStore>,
        manifest: &Manifest,
        run: RunId,
        owner: &Identity,
        secrets: Option<Arc<dyn CallSecrets>>,
    ) -> Self {
        let retention = manifest.artifact_retention.unwrap_or(store.config.retention);
        Self {
            store,
            prefix: format!("{}/{run}", manifest.name),
            retention,
            owner: owner.clone(),
            secrets,
            written: Mutex::default(),
        }
    }

    /// Returns what was written so far, and forgets it.
    pub(crate) fn take(&self) -> Vec<ArtifactRef> {
        std::mem::take(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Artifacts for Collector {
    async fn put(&self, name: &str, media_type: &str, bytes: Bytes) -> Result<ArtifactRef> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.starts_with('.') || !name.chars().all(plain) {
            let message = format!(
                "an artifact's name is 1 to {MAX_NAME_BYTES} of A-Z a-z 0-9 . _ - and does not start with a dot"
            );
            return Err(Error::new(Code::InvalidInput, message));
        }
        let revealed = self.secrets.as_ref().map(|secrets| secrets.revealed()).unwrap_or_default();
        // What stands in a secret's place could make two files one, so such a name is refused instead.
        if matches!(scrub::text(name, &revealed), std::borrow::Cow::Owned(_)) {
            return Err(Error::new(Code::InvalidInput, "an artifact's name holds a secret"));
        }
        let media_type = scrub::text(media_type, &revealed);
        let bytes = match scrub::bytes(&bytes, &revealed) {
            std::borrow::Cow::Borrowed(_) => bytes,
            std::borrow::Cow::Owned(clean) => clean.into(),
        };
        let key = format!("{}/{name}", self.prefix);
        let artifact = self.store.put(&self.owner, &key, name, &media_type, bytes, self.retention).await?;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|earlier| earlier.name != artifact.name);
        written.push(artifact.clone());
        Ok(artifact)
    }
}

/// Returns the time before which nothing of a run with these files may be served from a cache.
pub(crate) fn earliest_end(artifacts: &[ArtifactRef]) -> Option<Timestamp> {
    artifacts.iter().map(|artifact| artifact.expires_at).min()
}
