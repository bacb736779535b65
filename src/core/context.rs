//! Handler context: handles bound to the caller, behind traits that the engine implements.
//!
//! A handler never sees the engine, the store or the vault, and cannot address another caller.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use tokio_util::sync::CancellationToken;

use crate::error::{Code, Error, Result};
use crate::memory::{Facts, Memory, NoMemory, Notes};
pub use crate::outcome::ArtifactRef;
pub use crate::secrets::CallSecrets;
use crate::secrets::Secret;
use crate::session::Session;
use crate::{Correlation, Identity, Json, Outcome, PackName, RunId, Version};

/// Receiver of progress of a running call.
pub trait ProgressSink: Send + Sync {
    /// Reports a percentage (0 to 100), if the handler knows one, and a short text. Must not block.
    fn report(&self, percent: Option<f32>, message: &str);
}

/// The content of a file in chunks.
///
/// An error is the last chunk, and means that the file is incomplete.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// Receiver of the files of one run.
#[async_trait]
pub trait Artifacts: Send + Sync {
    /// Stores a file under a name of this run. The same name again replaces it.
    ///
    /// # Errors
    /// `invalid_input` for a name with path characters, `too_large` over the size cap,
    /// `artifact_failed` if it cannot be stored.
    async fn put(&self, name: &str, media_type: &str, bytes: Bytes) -> Result<ArtifactRef>;

    /// Stores a stream as a file, in bounded memory. The same name again replaces it.
    ///
    /// The file is there as a whole or not at all: if the source fails, or the future is dropped,
    /// nothing of it is kept.
    ///
    /// # Errors
    /// As [`Artifacts::put`]; the error of the source if that fails.
    async fn put_stream(
        &self,
        name: &str,
        media_type: &str,
        source: ByteStream,
    ) -> Result<ArtifactRef>;
}

/// Runs another pack through its own pipeline, with the same identity, deadline and cancel.
#[async_trait]
pub trait Packs: Send + Sync {
    /// Calls a pack. At most 8 deep.
    ///
    /// # Errors
    /// Any error of the pack's pipeline.
    async fn call(
        &self,
        from: &Context,
        pack: &PackName,
        version: Option<Version>,
        input: Json,
    ) -> Result<Outcome>;
}

/// A stale answer that the handler may confirm instead of fetching a new one.
#[derive(Debug, Clone)]
pub struct Stale {
    /// The stored output.
    pub output: Json,
    /// The validator that the handler gave with it.
    pub validator: Arc<str>,
}

/// Everything that a handler gets besides its input.
#[derive(Clone)]
pub struct Context {
    /// The pack that runs.
    pub pack: PackName,
    /// Its version.
    pub version: Version,
    /// The caller.
    pub identity: Arc<Identity>,
    /// The id of this run.
    pub run: RunId,
    /// The deadline of the run.
    pub deadline: Option<Instant>,
    /// Cancelled when no caller waits for the answer any more.
    pub cancel: Option<CancellationToken>,
    /// Nesting depth of this run.
    pub depth: u8,
    /// [`crate::Call::behind`] of the call, for the packs that it calls.
    pub behind: bool,
    /// Request id and trace. They are also current while the handler runs.
    pub correlation: Correlation,
    /// A stale answer that the handler may confirm with [`crate::Reply::not_modified`].
    pub stale: Option<Stale>,
    /// Whether a stored answer covers a failure, so that the handler need not repeat what fails.
    pub covered: bool,
    /// Receiver of progress reports.
    pub progress: Option<Arc<dyn ProgressSink>>,
    /// The credentials of this call.
    pub secrets: Option<Arc<dyn CallSecrets>>,
    /// Receiver of files.
    pub artifacts: Option<Arc<dyn Artifacts>>,
    /// The session that the manifest requires, or that the caller pinned.
    pub session: Option<Arc<dyn Session>>,
    /// The other packs.
    pub packs: Option<Arc<dyn Packs>>,
    /// The memory of the caller, or why there is none.
    pub memory: Result<Memory, NoMemory>,
}

impl Context {
    /// Makes a context that has only a pack, a caller and a run id.
    ///
    /// It has no deadline, credentials, files, other packs or memory. For handlers that run without
    /// an engine, in tests and measurements.
    #[must_use]
    pub const fn new(
        pack: PackName,
        version: Version,
        identity: Arc<Identity>,
        run: RunId,
    ) -> Self {
        Self {
            pack,
            version,
            identity,
            run,
            deadline: None,
            cancel: None,
            depth: 0,
            behind: false,
            correlation: Correlation {
                request_id: None,
                trace: None,
            },
            stale: None,
            covered: false,
            progress: None,
            secrets: None,
            artifacts: None,
            session: None,
            packs: None,
            memory: Err(NoMemory::Off),
        }
    }

    /// Reports progress: a percentage (0 to 100) if known, and a short text. Cheap, never blocks.
    pub fn report(&self, percent: Option<f32>, message: &str) {
        if let Some(progress) = &self.progress {
            progress.report(percent, message);
        }
    }

    /// Returns the secret of the first credential in the manifest.
    ///
    /// `None` if it does not exist: the handler then works anonymously.
    ///
    /// # Errors
    /// As [`CallSecrets::get`].
    pub fn credential(&self) -> Result<Option<Secret>> {
        match self
            .secrets
            .as_ref()
            .and_then(|secrets| Some((secrets, secrets.grants().first()?)))
        {
            Some((secrets, grant)) => secrets.get(&grant.name),
            None => Ok(None),
        }
    }

    /// Stores a file of this run.
    ///
    /// # Errors
    /// As [`Artifacts::put`]; `artifact_failed` if this engine has no artifact store.
    pub async fn put_artifact(
        &self,
        name: &str,
        media_type: &str,
        bytes: impl Into<Bytes> + Send,
    ) -> Result<ArtifactRef> {
        match &self.artifacts {
            Some(artifacts) => artifacts.put(name, media_type, bytes.into()).await,
            None => Err(Error::new(
                Code::ArtifactFailed,
                "this engine has no artifact store",
            )),
        }
    }

    /// Stores a stream as a file of this run, in bounded memory.
    ///
    /// # Errors
    /// As [`Artifacts::put_stream`]; `artifact_failed` if this engine has no artifact store.
    pub async fn put_artifact_stream(
        &self,
        name: &str,
        media_type: &str,
        source: ByteStream,
    ) -> Result<ArtifactRef> {
        match &self.artifacts {
            Some(artifacts) => artifacts.put_stream(name, media_type, source).await,
            None => Err(Error::new(
                Code::ArtifactFailed,
                "this engine has no artifact store",
            )),
        }
    }

    /// Returns the session of this call, for packs whose manifest requires one.
    ///
    /// # Errors
    /// `session_unavailable` if there is none.
    pub fn session(&self) -> Result<&Arc<dyn Session>> {
        let none = || Error::new(Code::SessionUnavailable, "this call has no session");
        self.session.as_ref().ok_or_else(none)
    }

    /// Returns the notes of this caller, `None` if this call has no memory.
    ///
    /// It has none if gate 1 is shut, if the caller is anonymous, or if callers share the answer. A
    /// handler that uses notes must work without them too.
    #[must_use]
    pub fn memory(&self) -> Option<Notes> {
        self.memory.as_ref().ok().map(Memory::notes)
    }

    /// Returns the facts about this caller, for packs that require memory.
    ///
    /// # Errors
    /// Why there is no memory for this call; `not_found` if gate 1 is shut.
    pub fn facts(&self) -> Result<Facts> {
        self.own_memory().map(Memory::facts)
    }

    /// Returns the memory of this caller, for packs that require memory.
    ///
    /// # Errors
    /// Why there is no memory for this call; `not_found` if gate 1 is shut.
    pub fn own_memory(&self) -> Result<&Memory> {
        self.memory.as_ref().map_err(|why| why.clone().into())
    }

    /// Runs another pack through its own pipeline with this caller, deadline and cancel.
    ///
    /// # Errors
    /// Any error of that pipeline; `invalid_input` beyond 8 levels.
    pub async fn call(&self, pack: &str, input: Json) -> Result<Outcome> {
        let pack =
            PackName::new(pack).map_err(|message| Error::new(Code::InvalidInput, message))?;
        match &self.packs {
            Some(packs) => packs.call(self, &pack, None, input).await,
            None => Err(Error::new(
                Code::Internal,
                "this handler runs without an engine",
            )),
        }
    }

    /// Returns how much time is left, `None` without a deadline.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

redacted_debug!(Context, this => pack = this.pack, version = this.version, run = this.run);
