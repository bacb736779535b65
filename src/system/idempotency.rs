//! Idempotency keys, each with the sealed answer of the call that used it.
//!
//! A key belongs to one run of a call: the replica that makes it, and a random [`Fence`]. Over all
//! replicas, one call gets it. If the replica goes away in the middle, what the call did is
//! unknown, and the key says so.

use std::time::Duration;

use aes_gcm::aead::Generate;
use helmdeck_core::{Timestamp, hex};
use helmdeck_memory::framing::Framed;
use helmdeck_memory::{Result, StoreError};
use sha2::{Digest, Sha256};

use crate::driver::{KeyName, TakeKey};
use crate::ends::CallEnd;
use crate::replica::Replica;
use crate::system::System;

/// Proof that a run still has its key: what another run may have taken over is not finished by the
/// first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence(pub(crate) [u8; 16]);

/// State of an idempotency key when a call arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Unknown before. This call now holds the key, and must finish or abandon it.
    New(Fence),
    /// A call with this key is running.
    InFlight {
        /// The digest of its request.
        digest: Vec<u8>,
    },
    /// A call with this key ran in a process that is gone. Whether it had an effect is unknown.
    Lost {
        /// The digest of its request.
        digest: Vec<u8>,
    },
    /// A call with this key has ended.
    Done {
        /// The digest of its request.
        digest: Vec<u8>,
        /// Its answer, as given to [`System::finish`].
        answer: Option<Vec<u8>>,
    },
}

/// Request for an idempotency key.
#[derive(Debug, Clone, Copy)]
pub struct KeyRequest<'a> {
    /// Separates callers and operations ([`System::scope`]).
    pub scope: &'a str,
    /// The key.
    pub key: &'a str,
    /// Digest of the request.
    pub digest: &'a [u8],
    /// How long the key is kept if its run neither finishes nor abandons it.
    pub keep: Duration,
    /// Whether a run whose process is gone may be repeated: then its key is taken over.
    pub repeatable: bool,
}

/// End of a call that [`System::begin`] accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEnd {
    /// The scope of the key.
    pub scope: String,
    /// The key.
    pub key: String,
    /// The proof of the run.
    pub fence: Fence,
    /// What became of the call; `None` = it had no effect, and its key is free again.
    pub ended: Option<KeptEnd>,
}

/// What is kept of a call that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEnd {
    /// Its sealed answer; `None` = there is none, or no key to seal it.
    pub answer: Option<Vec<u8>>,
    /// How long the key is taken.
    pub expires_at: Timestamp,
}

/// Scope of the MCP sessions that have ended. Those of callers begin with a digest.
const SESSIONS: &str = "mcp sessions";
/// Scope of upstreams that are not asked for a while.
const BACKOFFS: &str = "backoffs";
/// Limit of the upstreams that are read at once.
const BACKOFFS_READ: usize = 1000;
/// Prefix of the scope of each answer that was not kept.
const REFUSALS: &str = "refusals";
/// Limit of the reasons that are read of one answer.
const REFUSALS_READ: usize = 100;
/// How much the clocks of replicas may differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(24 * 3600);

impl System {
    /// Takes a key for a call, or returns its state. Of several concurrent calls, one gets
    /// [`Begun::New`].
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn begin(
        &self,
        request: KeyRequest<'_>,
        replica: &Replica,
        now: Timestamp,
    ) -> Result<Begun> {
        let taking = TakeKey {
            name: name(request.scope, request.key),
            digest: request.digest.to_vec(),
            owner: replica.id(),
            fence: Fence(<[u8; 16]>::try_generate().map_err(StoreError::unavailable)?),
            now,
            expires_at: now.saturating_add(request.keep),
            repeatable: request.repeatable,
        };
        self.driver().begin_key(taking).await
    }

    /// Writes the end of a call, and keeps at it in the background if the database cannot be
    /// reached.
    ///
    /// Then the end is in the journal when this returns, so that the next process with it goes on
    /// if this one ends. Of a run whose key another one has taken over, nothing is written.
    pub async fn end_key(&self, end: KeyEnd) {
        let end = CallEnd::Key(end);
        match self.try_end(&end).await {
            Ok(()) => {}
            Err(error) if error.is_temporary() => {
                tracing::warn!(%error, "the end of a call with an idempotency key could not be written; it is tried again");
                self.end_later(end).await;
            }
            // The key stays taken, which is safe.
            Err(error) => {
                tracing::warn!(%error, "the end of a call with an idempotency key could not be written")
            }
        }
    }

    /// Finishes a call that [`System::begin`] accepted. Returns `false` if another run has taken
    /// its key over.
    ///
    /// From now on [`System::begin`] returns [`Begun::Done`], until `expires_at`.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn finish(
        &self,
        scope: &str,
        key: &str,
        fence: Fence,
        answer: Option<Vec<u8>>,
        expires_at: Timestamp,
    ) -> Result<bool> {
        self.driver()
            .finish_key(name(scope, key), fence, answer, expires_at)
            .await
    }

    /// Frees a key whose call had no effect, so that the call can be retried.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn abandon(&self, scope: &str, key: &str, fence: Fence) -> Result<()> {
        self.driver().abandon_key(name(scope, key), fence).await
    }

    /// Records that an MCP session has ended, until no clock takes its id for a good one:
    /// `expires_at` and a day.
    ///
    /// Of the session there is only its random id, which opens nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn end_session(&self, id: &str, expires_at: Timestamp) -> Result<()> {
        self.driver()
            .mark_key(name(SESSIONS, id), expires_at.saturating_add(CLOCKS_DIFFER))
            .await
    }

    /// Records that something is not asked again before `until`: an upstream, or for one answer.
    ///
    /// `key` is a digest of what is not asked.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn back_off(&self, key: &str, until: Timestamp) -> Result<()> {
        self.driver().mark_key(name(BACKOFFS, key), until).await
    }

    /// Returns what is not asked now, and until when ([`System::back_off`]).
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn backoffs(&self, now: Timestamp) -> Result<Vec<(String, Timestamp)>> {
        self.driver()
            .key_ends(BACKOFFS.to_owned(), now, BACKOFFS_READ)
            .await
    }

    /// Records until `until` why an answer was not kept. `answer` is a digest of its key.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn refuse(&self, answer: &str, why: &str, until: Timestamp) -> Result<()> {
        self.driver()
            .mark_key(name(&format!("{REFUSALS}/{answer}"), why), until)
            .await
    }

    /// Returns why an answer was not kept the last time ([`System::refuse`]).
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn last_refusal(&self, answer: &str, now: Timestamp) -> Result<Option<String>> {
        let refusals = self
            .driver()
            .key_ends(format!("{REFUSALS}/{answer}"), now, REFUSALS_READ)
            .await?;
        Ok(refusals
            .into_iter()
            .max_by_key(|(_, until)| *until)
            .map(|(why, _)| why))
    }

    /// Returns which of these MCP sessions have ended ([`System::end_session`]).
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn ended_sessions(&self, ids: Vec<String>, now: Timestamp) -> Result<Vec<String>> {
        self.driver()
            .taken_keys(SESSIONS.to_owned(), ids, now)
            .await
    }

    /// Returns the scope of a caller's keys for an operation: a digest, without the caller's name.
    #[must_use]
    pub fn scope(tenant: &str, subject: &str, operation: &str) -> String {
        format!("{}/{operation}", caller(tenant, subject))
    }

    /// Deletes every key of a caller ([`System::scope`]) with its answer, and returns how many.
    ///
    /// Creates no database. SQLite overwrites the bytes, and empties the log unless a reader
    /// prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget(&self, tenant: &str, subject: &str) -> Result<u64> {
        self.driver().forget_keys(caller(tenant, subject)).await
    }
}

fn name(scope: &str, key: &str) -> KeyName {
    KeyName {
        scope: scope.to_owned(),
        key: key.to_owned(),
    }
}

/// Returns a digest of a caller: half of a SHA-256, in hex.
fn caller(tenant: &str, subject: &str) -> String {
    let framed = Framed::new("helmdeck/system/caller")
        .text(tenant)
        .text(subject);
    hex(&Sha256::digest(framed.as_slice())[..16])
}
