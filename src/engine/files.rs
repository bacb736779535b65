//! What the transports and the operator ask about files that packs wrote. The files themselves are in `artifacts`.

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use helmdeck_core::context::ByteStream;
use helmdeck_core::{ArtifactRef, Code, Error, Identity, PackName, Result};

use crate::artifacts::ArtifactPage;
use crate::engine::Engine;

impl Engine {
    /// Returns a file that a pack wrote for this caller, whole in memory.
    ///
    /// # Errors
    /// As [`Engine::open_artifact`].
    pub async fn artifact(&self, identity: &Identity, key: &str) -> Result<(ArtifactRef, Bytes)> {
        self.artifact_up_to(identity, key, u64::MAX).await
    }

    /// Returns a file that a pack wrote for this caller, whole in memory, if it has no more bytes than that.
    ///
    /// # Errors
    /// As [`Engine::open_artifact`]; `too_large` if it is longer.
    pub async fn artifact_up_to(&self, identity: &Identity, key: &str, max_bytes: u64) -> Result<(ArtifactRef, Bytes)> {
        let (about, pieces) = self.open_artifact(Some(identity), key).await?;
        if about.size > max_bytes {
            let message = format!("the file has {} bytes, and only {max_bytes} fit", about.size);
            return Err(Error::new(Code::TooLarge, message));
        }
        let bytes = pieces.try_fold(BytesMut::new(), async |mut whole, piece| {
            whole.extend_from_slice(&piece);
            Ok(whole)
        });
        Ok((about, bytes.await?.freeze()))
    }

    /// Opens a file that a pack wrote for this caller; without a caller, which only an operator may leave out, for anybody.
    ///
    /// The bytes come piece by piece. A file that is damaged ends with an error before its last piece; one of at most 1 MiB is not
    /// opened at all.
    ///
    /// # Errors
    /// `not_found` if there is none, it has ended or it is somebody else's; `artifact_failed` if it cannot be read.
    pub async fn open_artifact(&self, owner: Option<&Identity>, key: &str) -> Result<(ArtifactRef, ByteStream)> {
        match &self.0.artifacts {
            Some(files) => files.open(owner, key).await,
            None => Err(Error::new(Code::NotFound, "there is no such artifact")),
        }
    }

    /// Lists files that have not ended: of this caller the newest first; without one, which only an operator may leave out, of
    /// everybody.
    ///
    /// `limit` is the most files of a page, `after` the `next` of the page before.
    ///
    /// # Errors
    /// `invalid_input` if `after` is none that a page gave; `artifact_failed` if the place of the files does not answer.
    pub async fn artifacts(
        &self,
        owner: Option<&Identity>,
        pack: Option<&PackName>,
        limit: usize,
        after: Option<&str>,
    ) -> Result<ArtifactPage> {
        match &self.0.artifacts {
            Some(files) => files.list(owner, pack, limit, after).await,
            None => Ok(ArtifactPage { artifacts: Vec::new(), next: None }),
        }
    }

    /// Deletes a file of this caller; without one, which only an operator may leave out, of anybody.
    ///
    /// # Errors
    /// `not_found` if there is none or it is somebody else's; `artifact_failed` if it cannot be deleted.
    pub async fn delete_artifact(&self, owner: Option<&Identity>, key: &str) -> Result<()> {
        match &self.0.artifacts {
            Some(files) => files.delete(owner, key).await,
            None => Err(Error::new(Code::NotFound, "there is no such artifact")),
        }
    }

    /// Deletes every file of a caller, also one that is being written, and says how many went. Needs no memory key.
    ///
    /// # Errors
    /// `artifact_failed` if the place of the files does not answer; what went is gone, and the rest is found by the next try.
    pub async fn forget_artifacts(&self, tenant: &str, user: &str) -> Result<u64> {
        match &self.0.artifacts {
            Some(files) => files.forget(tenant, user).await,
            None => Ok(0),
        }
    }

    /// Says whether the place of the files can be reached. Changes nothing.
    ///
    /// # Errors
    /// `artifact_failed` if not.
    pub async fn reach_artifacts(&self) -> Result<()> {
        match &self.0.artifacts {
            Some(files) => files.reach().await,
            None => Ok(()),
        }
    }

    /// Writes a small object to the place of the files, reads it back and deletes it.
    ///
    /// # Errors
    /// `artifact_failed` with what does not work.
    pub async fn probe_artifacts(&self) -> Result<()> {
        match &self.0.artifacts {
            Some(files) => files.probe().await,
            None => Ok(()),
        }
    }
}
