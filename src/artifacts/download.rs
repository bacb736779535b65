//! Downloads of artifacts.
//!
//! The digest is checked on the way: a stream that does not match never ends like a complete one.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use helmdeck_core::context::ByteStream;
use helmdeck_core::{ArtifactRef, Code, Error, Identity, Result};
use object_store::{GetResult, ObjectStoreExt};
use sha2::{Digest, Sha256};

use crate::names::{self, hex};
use crate::store::{About, ArtifactStore, no_artifact};

/// Artifacts up to this size are checked before their first byte is sent.
const CHECKED_FIRST_BYTES: u64 = 1 << 20;

impl ArtifactStore {
    /// Opens an artifact of this owner; without an owner, of any caller.
    ///
    /// A stream whose digest turns out wrong ends with an error instead of its last piece.
    ///
    /// # Errors
    /// `not_found` if it does not exist, has expired, or belongs to another caller;
    /// `artifact_failed` if it is damaged or cannot be read.
    pub async fn open(
        self: &Arc<Self>,
        owner: Option<&Identity>,
        key: &str,
    ) -> Result<(ArtifactRef, ByteStream)> {
        let mut about = self.live(owner, key).await?;
        let found = loop {
            if let Some(found) = self.bytes(&about).await? {
                break found;
            }
            // It may have been replaced since: then a newer one exists.
            let later = self.live(owner, key).await?;
            if later.created_at == about.created_at {
                return Err(no_artifact());
            }
            about = later;
        };
        if found.meta.size != about.artifact.size {
            return Err(self.damaged("its size has changed"));
        }
        let stream = self.checked(&about.artifact, found);
        if about.artifact.size > CHECKED_FIRST_BYTES {
            return Ok((about.artifact, stream));
        }
        let pieces: Vec<Result<Bytes>> = stream.collect().await;
        let pieces = pieces.into_iter().collect::<Result<Vec<Bytes>>>()?;
        Ok((
            about.artifact,
            Box::pin(stream::iter(pieces.into_iter().map(Ok))),
        ))
    }

    /// Reads an artifact of this owner of at most `max_bytes` into memory.
    ///
    /// # Errors
    /// As [`ArtifactStore::open`]; `too_large` if it is longer.
    pub async fn whole(
        self: &Arc<Self>,
        owner: &Identity,
        key: &str,
        max_bytes: u64,
    ) -> Result<(ArtifactRef, Bytes)> {
        let (about, pieces) = self.open(Some(owner), key).await?;
        if about.size > max_bytes {
            let message = format!(
                "the file has {} bytes, and only {max_bytes} fit",
                about.size
            );
            return Err(Error::new(Code::TooLarge, message));
        }
        let bytes = pieces.try_fold(BytesMut::new(), async |mut whole, piece| {
            whole.extend_from_slice(&piece);
            Ok(whole)
        });
        Ok((about, bytes.await?.freeze()))
    }

    /// Opens the bytes of an artifact; `None` if they are missing.
    async fn bytes(&self, about: &About) -> Result<Option<GetResult>> {
        let Some(file) = names::file(&about.artifact.key, about.created_at) else {
            return Ok(None);
        };
        let Some(store) = self.existing().await? else {
            return Ok(None);
        };
        match store.get(&file).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read", error)),
        }
    }

    /// Passes a stream on, one piece late, so that the last piece is sent only if the digest
    /// matches.
    fn checked(self: &Arc<Self>, artifact: &ArtifactRef, found: GetResult) -> ByteStream {
        let reading = Reading {
            files: Arc::clone(self),
            inner: found.into_stream().fuse(),
            held: None,
            digest: Sha256::new(),
            sha256: artifact.sha256.clone(),
        };
        Box::pin(stream::try_unfold(
            Some(reading),
            async |reading| match reading {
                Some(reading) => reading.next().await,
                None => Ok(None),
            },
        ))
    }
}

struct Reading<S> {
    files: Arc<ArtifactStore>,
    inner: S,
    held: Option<Bytes>,
    digest: Sha256,
    sha256: String,
}

impl<S: stream::Stream<Item = object_store::Result<Bytes>> + Unpin> Reading<S> {
    /// Returns the next piece and the rest of the stream.
    async fn next(mut self) -> Result<Option<(Bytes, Option<Self>)>> {
        loop {
            match self.inner.next().await {
                Some(Ok(piece)) => {
                    self.digest.update(&piece);
                    if let Some(ready) = self.held.replace(piece) {
                        return Ok(Some((ready, Some(self))));
                    }
                }
                Some(Err(error)) => return Err(self.files.failed("read", error)),
                None if hex(&self.digest.finalize_reset()) != self.sha256 => {
                    return Err(self.files.damaged("its digest has changed"));
                }
                None => {
                    self.files.succeeded();
                    return Ok(self.held.take().map(|last| (last, None)));
                }
            }
        }
    }
}
