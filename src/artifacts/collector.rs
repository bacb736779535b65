//! Collects the artifacts of one run, redacted.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use helmdeck_core::context::{Artifacts, ByteStream, CallSecrets};
use helmdeck_core::{
    ArtifactRef, Code, Error, Identity, Manifest, Result, RunId, Secret, Timestamp,
};

use crate::names;
use crate::store::ArtifactStore;
use crate::upload::{NewArtifact, WrittenFile};

/// Collector of the artifacts of one run.
pub struct Collector {
    store: Arc<ArtifactStore>,
    prefix: String,
    retention: Duration,
    owner: Identity,
    secrets: Option<Arc<dyn CallSecrets>>,
    files: Mutex<RunFiles>,
}

/// Artifacts of one run.
#[derive(Default)]
struct RunFiles {
    written: Vec<WrittenFile>,
    /// Start time of the latest artifact.
    last: Option<Timestamp>,
}

helmdeck_core::redacted_debug!(Collector);

impl Collector {
    /// Makes a collector for the run of a pack.
    pub fn new(
        store: Arc<ArtifactStore>,
        manifest: &Manifest,
        run: RunId,
        owner: &Identity,
        secrets: Option<Arc<dyn CallSecrets>>,
    ) -> Self {
        let retention = manifest
            .artifact_retention
            .unwrap_or(store.config.retention);
        Self {
            store,
            prefix: format!("{}/{run}", manifest.name),
            retention,
            owner: owner.clone(),
            secrets,
            files: Mutex::default(),
        }
    }

    /// Returns the artifacts written so far, and clears the collector.
    pub fn take(&self) -> Vec<ArtifactRef> {
        let written = std::mem::take(&mut self.files.lock().written);
        written
            .into_iter()
            .map(|written| written.artifact)
            .collect()
    }

    fn revealed(&self) -> Vec<Secret> {
        self.secrets
            .as_ref()
            .map(|secrets| secrets.revealed())
            .unwrap_or_default()
    }

    async fn store(&self, name: &str, media_type: &str, source: ByteStream) -> Result<ArtifactRef> {
        names::check(name)?;
        let revealed = self.revealed();
        // Redaction could give two artifacts the same name, so a name with a secret is refused.
        if matches!(helmdeck_redact::text(name, &revealed), Cow::Owned(_)) {
            return Err(Error::new(
                Code::InvalidInput,
                "an artifact's name holds a secret",
            ));
        }
        let (earlier, started) = self.begin(name);
        let wanted = NewArtifact {
            owner: &self.owner,
            key: &format!("{}/{name}", self.prefix),
            name,
            media_type: &helmdeck_redact::text(media_type, &revealed),
            retention: self.retention,
            started,
            replaces: earlier.as_ref(),
        };
        let artifact = self.store.put(&wanted, source).await?;
        let written = &mut self.files.lock().written;
        written.retain(|earlier| earlier.artifact.name != artifact.name);
        written.push(WrittenFile {
            artifact: artifact.clone(),
            started,
        });
        Ok(artifact)
    }

    /// Returns the earlier file of this name, and the start time of the next file.
    ///
    /// The start time is later than those of all other files of the run, since the object's name is
    /// derived from it.
    fn begin(&self, name: &str) -> (Option<WrittenFile>, Timestamp) {
        let now = self.store.clock.now();
        let mut files = self.files.lock();
        let started = files.last.map_or(now, |last| {
            now.max(last.saturating_add(Duration::from_micros(1)))
        });
        files.last = Some(started);
        (
            files
                .written
                .iter()
                .find(|earlier| earlier.artifact.name == name)
                .cloned(),
            started,
        )
    }
}

#[async_trait]
impl Artifacts for Collector {
    async fn put(&self, name: &str, media_type: &str, bytes: Bytes) -> Result<ArtifactRef> {
        let max = self.store.config.max_bytes;
        if bytes.len() as u64 > max {
            let message = format!("the file has {} bytes, the limit is {max}", bytes.len());
            return Err(Error::new(Code::TooLarge, message));
        }
        let bytes = match helmdeck_redact::bytes(&bytes, &self.revealed()) {
            Cow::Borrowed(_) => bytes,
            Cow::Owned(clean) => clean.into(),
        };
        self.store(name, media_type, Box::pin(stream::iter([Ok(bytes)])))
            .await
    }

    async fn put_stream(
        &self,
        name: &str,
        media_type: &str,
        source: ByteStream,
    ) -> Result<ArtifactRef> {
        let source = match &self.secrets {
            Some(secrets) => helmdeck_redact::stream(source, Arc::clone(secrets)),
            None => source,
        };
        self.store(name, media_type, source).await
    }
}

/// Returns when the first of these artifacts expires; a cached answer must not outlive it.
pub fn earliest_end(artifacts: &[ArtifactRef]) -> Option<Timestamp> {
    artifacts.iter().map(|artifact| artifact.expires_at).min()
}
