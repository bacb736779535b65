//! Writes an artifact while its source is read, in bounded memory.
//!
//! A small file is written as one object, a larger one in parts. An abandoned upload is removed.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use helmdeck_core::context::ByteStream;
use helmdeck_core::{ArtifactRef, Code, Error, Identity, Result, Timestamp};
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use sha2::{Digest, Sha256};

use crate::names::{self, NameEntry, hex};
use crate::store::{About, ArtifactStore};

/// Size of a part of an upload. S3 takes at least 5 MiB.
const PART_BYTES: u64 = 8 << 20;
/// Limit of parts in S3.
const MAX_PARTS: u64 = 10_000;

/// The last time that can be written in RFC 3339: the end of the year 9999.
const LAST: Timestamp = Timestamp(253_402_300_799_000_000);

/// A file to write.
pub(super) struct NewArtifact<'a> {
    pub(super) owner: &'a Identity,
    pub(super) key: &'a str,
    pub(super) name: &'a str,
    pub(super) media_type: &'a str,
    pub(super) retention: Duration,
    /// Start time of the write. No two files of a run have the same.
    pub(super) started: Timestamp,
    /// The file that this run wrote under the same name before.
    pub(super) replaces: Option<&'a WrittenFile>,
}

/// A file that a run has written.
#[derive(Debug, Clone)]
pub(super) struct WrittenFile {
    pub(super) artifact: ArtifactRef,
    /// Start time of the write.
    pub(super) started: Timestamp,
}

impl ArtifactStore {
    /// Stores a file.
    ///
    /// # Errors
    /// `too_large` over the size cap, `artifact_failed` if it cannot be stored, the error of the
    /// source if that fails.
    pub(super) async fn put(
        &self,
        wanted: &NewArtifact<'_>,
        source: ByteStream,
    ) -> Result<ArtifactRef> {
        let started = wanted.started;
        let ends = started.saturating_add(wanted.retention).min(LAST);
        let owner = names::owner(wanted.owner.tenant(), wanted.owner.user());
        let entry = NameEntry {
            owner,
            key: wanted.key.to_owned(),
            ends,
            started,
        };
        let impossible = || Error::new(Code::Internal, "the artifact has no possible key");
        let (path, file, about) = entry
            .path()
            .and_then(|path| Some((path, entry.file()?, names::about(wanted.key)?)))
            .ok_or_else(impossible)?;
        let store = self
            .place
            .ready()
            .await
            .map_err(|error| self.failed("store", error))?;
        let fail = |error: object_store::Error| self.failed("store", error);
        // The entry first: by it a sweep finds the files that a crash leaves, and a deletion by
        // owner finds the file.
        store
            .put(&path, PutPayload::default())
            .await
            .map_err(fail)?;
        let (size, sha256) = match self.write(store, &file, source).await {
            Ok(written) => written,
            Err(error) => {
                self.give_up(store, &file, &path).await;
                return Err(error);
            }
        };
        let artifact = ArtifactRef {
            key: wanted.key.to_owned(),
            name: wanted.name.to_owned(),
            media_type: wanted.media_type.to_owned(),
            size,
            sha256,
            expires_at: ends,
        };
        let known = About::new(artifact, wanted.owner, started);
        let text = serde_json::to_vec(&known).map_err(|error| self.failed("store", error))?;
        // The description is written last: it makes the file visible.
        store.put(&about, text.into()).await.map_err(fail)?;
        self.not_forgotten(store, &entry, &path).await?;
        if let Some(earlier) = wanted.replaces {
            let (ends, started) = (earlier.artifact.expires_at, earlier.started);
            let old = NameEntry {
                ends,
                started,
                ..entry
            };
            // If this fails, the sweep deletes it.
            let _ = self.delete_all(store, [old.file(), old.path()]).await;
        }
        self.succeeded();
        self.metrics.stored.inc();
        self.metrics.stored_bytes.inc_by(size);
        Ok(known.artifact)
    }

    async fn write(
        &self,
        store: &Arc<dyn ObjectStore>,
        to: &Key,
        mut source: ByteStream,
    ) -> Result<(u64, String)> {
        let mut upload = Upload {
            files: self,
            store,
            to,
            parts: None,
            buffer: BytesMut::new(),
            part_bytes: usize::try_from(PART_BYTES.max(self.config.max_bytes.div_ceil(MAX_PARTS)))
                .unwrap_or(usize::MAX),
            digest: Sha256::new(),
            size: 0,
        };
        while let Some(piece) = source.next().await {
            upload.add(piece?).await?;
        }
        upload.finish().await
    }

    /// Removes the rest of a failed upload. The file that it should replace stays unchanged.
    async fn give_up(&self, store: &Arc<dyn ObjectStore>, file: &Key, entry: &Key) {
        if matches!(
            store.delete(file).await,
            Ok(()) | Err(object_store::Error::NotFound { .. })
        ) {
            let _ = store.delete(entry).await;
        }
    }

    /// Checks that the entry of a file that has become visible still exists.
    ///
    /// If it was deleted in the meantime, the file cannot be found any more, so it is removed too.
    async fn not_forgotten(
        &self,
        store: &Arc<dyn ObjectStore>,
        entry: &NameEntry,
        path: &Key,
    ) -> Result<()> {
        match store.head(path).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::NotFound { .. }) => {
                self.remove(store, entry).await?;
                Err(Error::new(
                    Code::ArtifactFailed,
                    "the artifact was deleted while it was written",
                ))
            }
            Err(error) => Err(self.failed("store", error)),
        }
    }
}

/// A file that is being written.
struct Upload<'a> {
    files: &'a ArtifactStore,
    store: &'a Arc<dyn ObjectStore>,
    to: &'a Key,
    parts: Option<MultipartWrite>,
    buffer: BytesMut,
    part_bytes: usize,
    digest: Sha256,
    size: u64,
}

impl Upload<'_> {
    async fn add(&mut self, mut piece: Bytes) -> Result<()> {
        let max = self.files.config.max_bytes;
        self.size = self.size.saturating_add(piece.len() as u64);
        if self.size > max {
            let message = format!(
                "the file has at least {} bytes, the limit is {max}",
                self.size
            );
            return Err(Error::new(Code::TooLarge, message));
        }
        self.digest.update(&piece);
        while !piece.is_empty() {
            let room = self
                .part_bytes
                .saturating_sub(self.buffer.len())
                .min(piece.len());
            self.buffer.extend_from_slice(&piece.split_to(room));
            // A full part waits until there is more, so that a file of one part is one object.
            if !piece.is_empty() {
                self.send().await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<()> {
        if self.parts.is_none() {
            let started = self.store.put_multipart(self.to).await;
            self.parts = Some(MultipartWrite(Some(
                started.map_err(|error| self.files.failed("store", error))?,
            )));
        }
        let part = self.buffer.split().freeze();
        let Some(parts) = self.parts.as_mut().and_then(|parts| parts.0.as_mut()) else {
            return Ok(());
        };
        parts
            .put_part(part.into())
            .await
            .map_err(|error| self.files.failed("store", error))
    }

    async fn finish(mut self) -> Result<(u64, String)> {
        if self.parts.is_some() {
            if !self.buffer.is_empty() {
                self.send().await?;
            }
            if let Some(parts) = &mut self.parts {
                parts
                    .complete()
                    .await
                    .map_err(|error| self.files.failed("store", error))?;
            }
        } else {
            let whole = self.buffer.split().freeze();
            self.store
                .put(self.to, whole.into())
                .await
                .map_err(|error| self.files.failed("store", error))?;
        }
        Ok((self.size, hex(&self.digest.finalize())))
    }
}

/// Parts of an upload. If it is dropped before it is complete, the store discards them.
struct MultipartWrite(Option<Box<dyn MultipartUpload>>);

impl MultipartWrite {
    async fn complete(&mut self) -> object_store::Result<()> {
        if let Some(upload) = &mut self.0 {
            upload.complete().await?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for MultipartWrite {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) =
            (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move {
                if let Err(error) = upload.abort().await {
                    tracing::debug!(%error, "parts of an upload that was given up are left in the store");
                }
            });
        }
    }
}
