//! Idempotency keys, each with the sealed answer of the call that used it.
//!
//! A key belongs to one run of a call: the replica that makes it, and a random [`Fence`]. Over all replicas, one call
//! gets it. If the replica goes away in the middle, what the call did is unknown, and the key says so.

use std::time::Duration;

use aes_gcm::aead::Generate;
use helmdeck_core::{Timestamp, hex};
use helmdeck_memory::framing::Framed;
use helmdeck_memory::{Result, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::driver::{KeyName, TakeKey};
use crate::journal::JournalEntry;
use crate::replica::Replica;
use crate::system::System;

/// Proof that a run still has its key: what another run may have taken over is not finished by the first one.
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

/// Kind of ends in the journal.
const JOURNAL_KIND: &str = "key end";
/// How often an end is written again that the database did not take.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

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
    /// Takes a key for a call, or returns its state. Of several concurrent calls, one gets [`Begun::New`].
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn begin(&self, request: KeyRequest<'_>, replica: &Replica, now: Timestamp) -> Result<Begun> {
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

    /// Writes the end of a call, and keeps at it in the background if the database cannot be reached.
    ///
    /// Then the end is in the journal when this returns, so that the next process with it goes on if this one ends. Of a run
    /// whose key another one has taken over, nothing is written.
    pub async fn end_key(&self, end: KeyEnd) {
        match self.try_end(&end).await {
            Ok(()) => {}
            Err(error) if error.is_temporary() => {
                tracing::warn!(%error, "the end of a call with an idempotency key could not be written; it is tried again");
                let entry = self.journal_end(&end).await;
                self.end_in_background(end, entry);
            }
            // The key stays taken, which is safe.
            Err(error) => tracing::warn!(%error, "the end of a call with an idempotency key could not be written"),
        }
    }

    /// Goes on with the ends that the journal says the database does not have. Call it once, at the start of a server.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`: of the journal.
    pub async fn resume_key_ends(&self) -> Result<()> {
        let Some(journal) = self.journal() else { return Ok(()) };
        for JournalEntry { id, entry } in journal.entries(JOURNAL_KIND).await? {
            match entry.as_deref().and_then(KeyEnd::read) {
                Some(end) => self.end_in_background(end, Some(id)),
                None => {
                    tracing::warn!("the end of a call in the journal does not open; its idempotency key stays taken");
                    journal.remove(id).await?;
                }
            }
        }
        Ok(())
    }

    async fn journal_end(&self, end: &KeyEnd) -> Option<i64> {
        let entry = self.journal()?.add(JOURNAL_KIND, &end.write()).await;
        entry.inspect_err(|error| {
            tracing::error!(%error, "the end of a call is not in the journal either: it is lost if this process ends before \
                                     the database is back");
        })
        .ok()
    }

    fn end_in_background(&self, end: KeyEnd, entry: Option<i64>) {
        let system = self.clone();
        tokio::spawn(async move {
            while let Err(error) = system.try_end(&end).await {
                if !error.is_temporary() {
                    tracing::warn!(%error, "the end of a call with an idempotency key could not be written");
                    break;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            if let (Some(journal), Some(entry)) = (system.journal(), entry)
                && let Err(error) = journal.remove(entry).await
            {
                // It is written once more after the next start.
                tracing::debug!(%error, "the end of a call could not be removed from the journal");
            }
        });
    }

    async fn try_end(&self, end: &KeyEnd) -> Result<()> {
        let (scope, key) = (&end.scope, &end.key);
        match &end.ended {
            Some(kept) => self.finish(scope, key, end.fence, kept.answer.clone(), kept.expires_at).await.map(drop),
            None => self.abandon(scope, key, end.fence).await,
        }
    }

    /// Finishes a call that [`System::begin`] accepted. Returns `false` if another run has taken its key over.
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
        self.driver().finish_key(name(scope, key), fence, answer, expires_at).await
    }

    /// Frees a key whose call had no effect, so that the call can be retried.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn abandon(&self, scope: &str, key: &str, fence: Fence) -> Result<()> {
        self.driver().abandon_key(name(scope, key), fence).await
    }

    /// Records that an MCP session has ended, until no clock takes its id for a good one: `expires_at` and a day.
    ///
    /// Of the session there is only its random id, which opens nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn end_session(&self, id: &str, expires_at: Timestamp) -> Result<()> {
        self.driver().mark_key(name(SESSIONS, id), expires_at.saturating_add(CLOCKS_DIFFER)).await
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
        self.driver().key_ends(BACKOFFS.to_owned(), now, BACKOFFS_READ).await
    }

    /// Records until `until` why an answer was not kept. `answer` is a digest of its key.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn refuse(&self, answer: &str, why: &str, until: Timestamp) -> Result<()> {
        self.driver().mark_key(name(&format!("{REFUSALS}/{answer}"), why), until).await
    }

    /// Returns why an answer was not kept the last time ([`System::refuse`]).
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn last_refusal(&self, answer: &str, now: Timestamp) -> Result<Option<String>> {
        let refusals = self.driver().key_ends(format!("{REFUSALS}/{answer}"), now, REFUSALS_READ).await?;
        Ok(refusals.into_iter().max_by_key(|(_, until)| *until).map(|(why, _)| why))
    }

    /// Returns which of these MCP sessions have ended ([`System::end_session`]).
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn ended_sessions(&self, ids: Vec<String>, now: Timestamp) -> Result<Vec<String>> {
        self.driver().taken_keys(SESSIONS.to_owned(), ids, now).await
    }

    /// Returns the scope of a caller's keys for an operation: a digest, without the caller's name.
    #[must_use]
    pub fn scope(tenant: &str, subject: &str, operation: &str) -> String {
        format!("{}/{operation}", caller(tenant, subject))
    }

    /// Deletes every key of a caller ([`System::scope`]) with its answer, and returns how many.
    ///
    /// Creates no database. SQLite overwrites the bytes, and empties the log unless a reader prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget(&self, tenant: &str, subject: &str) -> Result<u64> {
        self.driver().forget_keys(caller(tenant, subject)).await
    }
}

/// Everything of an end but the bytes of its answer, for the journal.
#[derive(Serialize, Deserialize)]
struct JournaledEnd {
    scope: String,
    key: String,
    fence: [u8; 16],
    /// `None` = the key is free again.
    expires_at: Option<i64>,
    answered: bool,
}

impl KeyEnd {
    /// Writes it as a line of JSON, and the answer.
    fn write(&self) -> Vec<u8> {
        let kept = self.ended.as_ref();
        let answer = kept.and_then(|kept| kept.answer.as_deref());
        let head = JournaledEnd {
            scope: self.scope.clone(),
            key: self.key.clone(),
            fence: self.fence.0,
            expires_at: kept.map(|kept| kept.expires_at.micros()),
            answered: answer.is_some(),
        };
        // Plain data; writing it to memory cannot fail.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        [&head[..], b"\n", answer.unwrap_or_default()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let line = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: JournaledEnd = serde_json::from_slice(&bytes[..line]).ok()?;
        let answer = head.answered.then(|| bytes[line + 1..].to_vec());
        let ended = head.expires_at.map(|expires_at| KeptEnd { answer, expires_at: Timestamp(expires_at) });
        Some(Self { scope: head.scope, key: head.key, fence: Fence(head.fence), ended })
    }
}

fn name(scope: &str, key: &str) -> KeyName {
    KeyName { scope: scope.to_owned(), key: key.to_owned() }
}

/// Returns a digest of a caller: half of a SHA-256, in hex.
fn caller(tenant: &str, subject: &str) -> String {
    let framed = Framed::new("helmdeck/system/caller").text(tenant).text(subject);
    hex(&Sha256::digest(framed.as_slice())[..16])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use helmdeck_testkit::{keyring, until};

    use super::*;
    use crate::journal::Journal;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn system(folder: &Path) -> System {
        let journal = Journal::at(folder.join("journal.db"), Duration::from_secs(10), Some(keyring()));
        System::at(folder.join("system").join("helmdeck.db")).with_journal(journal)
    }

    async fn begin(system: &System, key: &str) -> Begun {
        let asked = KeyRequest { scope: "s", key, digest: b"d", keep: Duration::from_secs(60), repeatable: false };
        system.begin(asked, &system.replica().await.unwrap(), NOW).await.unwrap()
    }

    fn end(key: &str, begun: &Begun, ended: Option<KeptEnd>) -> KeyEnd {
        let Begun::New(fence) = begun else { panic!("{begun:?}") };
        KeyEnd { scope: "s".into(), key: key.into(), fence: *fence, ended }
    }

    #[test]
    fn ends_are_read_as_written() {
        let kept = |answer: Option<&[u8]>| Some(KeptEnd { answer: answer.map(<[u8]>::to_vec), expires_at: NOW });
        for ended in [None, kept(None), kept(Some(b"")), kept(Some(b"a\nb\n\0"))] {
            let end = KeyEnd { scope: "s/\n".into(), key: "k".into(), fence: Fence([7; 16]), ended };
            assert_eq!(KeyEnd::read(&end.write()), Some(end));
        }
        assert_eq!(KeyEnd::read(b"no line"), None);
    }

    #[tokio::test]
    async fn end_is_written_when_the_database_is_back_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (place, aside) = (folder.path().join("system"), folder.path().join("aside"));
        let one = system(folder.path());
        let (kept, freed) = (begin(&one, "kept").await, begin(&one, "freed").await);
        let ended =
            KeptEnd { answer: Some(b"sealed".to_vec()), expires_at: NOW.saturating_add(Duration::from_secs(60)) };
        let entries = async |system: &System| system.journal().unwrap().entries(JOURNAL_KIND).await.unwrap().len();
        let away = || {
            std::fs::rename(&place, &aside).unwrap();
            std::fs::write(&place, "").unwrap();
        };
        let back = || {
            std::fs::remove_file(&place).unwrap();
            std::fs::rename(&aside, &place).unwrap();
        };
        away();
        one.end_key(end("kept", &kept, Some(ended.clone()))).await;
        assert_eq!(entries(&one).await, 1, "before the answer leaves");
        back();
        until("the end", async || entries(&one).await == 0).await;
        let done = Begun::Done { digest: b"d".into(), answer: Some(b"sealed".into()) };
        assert_eq!(begin(&one, "kept").await, done);

        // The process ends before the database is back: its runtime stops with what it tried.
        away();
        let other = one.clone();
        let freed = end("freed", &freed, None);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(other.end_key(freed));
        })
        .join()
        .unwrap();
        back();
        assert_eq!(entries(&one).await, 1);
        let two = system(folder.path());
        two.resume_key_ends().await.unwrap();
        until("the end", async || entries(&two).await == 0).await;
        assert!(matches!(begin(&two, "freed").await, Begun::New(_)));
    }
}
