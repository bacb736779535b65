//! Cached answer, in memory and sealed: a small head with its metadata, then the output.
//!
//! The head holds freshness, validator and references.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use helmdeck_core::numbers::micros;
use helmdeck_core::outcome::{Remark, UsedGrant};
use helmdeck_core::secrets::credential_tag;
use helmdeck_core::{
    ArtifactRef, CacheInfo, CacheStatus, Code, Error, Json, Outcome, PackName, Result, Timestamp,
    Version,
};
use helmdeck_memory::Namespace;
use serde::{Deserialize, Serialize};

use super::key::Key;

const FORMAT: u8 = 1;

/// Approximate size of a reference to an artifact.
const ARTIFACT_BYTES: usize = 512;
/// Approximate size of the head of a stored row.
const HEAD_BYTES: usize = 224;
/// Size in bytes below which an output from the store is copied, so that the head before it does
/// not stay in memory.
const COPY_BELOW: usize = 4 << 10;

/// Returns the memory that an allocation of `bytes` takes, with the allocator's own header and
/// rounding.
pub(super) const fn block(bytes: usize) -> usize {
    let bytes = (bytes + 8).next_multiple_of(16);
    if bytes < 32 { 32 } else { bytes }
}

/// Returns the memory that a shared allocation of `bytes` takes: it has two counters.
const fn shared(bytes: usize) -> usize {
    block(bytes + 16)
}

/// Location of an answer in the cache: everything that a purge may select it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) key: Key,
    pub(crate) pack: PackName,
    pub(crate) version: Version,
    pub(crate) namespace: Namespace,
    pub(crate) tags: Arc<[String]>,
}

/// An error that is stored like an answer: the upstream refuses exactly this request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredError {
    pub(crate) code: Code,
    message: Arc<str>,
}

impl StoredError {
    pub(crate) fn new(error: &Error) -> Self {
        Self {
            code: error.code(),
            message: error.message().into(),
        }
    }
}

/// A cached answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) location: Arc<Location>,
    /// The output; `null` beside an error.
    pub(crate) output: Json,
    /// `None` if it has none of them.
    extras: Option<Box<Extras>>,
    pub(crate) made_at: Timestamp,
    pub(crate) fresh_until: Timestamp,
    pub(crate) hard_until: Timestamp,
    /// The handler must confirm it before each use.
    pub(crate) confirm_always: bool,
    /// Duration of the handler in microseconds: the time that a hit saves.
    cost_us: u64,
    /// Number of its upstream requests.
    pub(crate) upstream_calls: u32,
    /// Invalidated: not stored, purged, replaced or evicted. It goes only to waiters that have it
    /// already.
    invalid: AtomicBool,
    /// Read from the hot tier since the store was told last.
    read: AtomicBool,
}

/// What only some answers have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) error: Option<StoredError>,
    pub(crate) artifacts: Arc<[ArtifactRef]>,
    pub(crate) validator: Option<Arc<str>>,
    /// The credentials of the packs that its handler called.
    pub(crate) used: Vec<UsedGrant>,
}

impl Extras {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    /// Returns the memory that they take.
    fn weight(&self) -> usize {
        let name = |one: &UsedGrant| block(one.pack.as_str().len()) + block(one.grant.name.len());
        let used: usize = self
            .used
            .iter()
            .map(|one| size_of::<UsedGrant>() + name(one))
            .sum();
        let validator = self
            .validator
            .as_ref()
            .map_or(0, |validator| shared(validator.len()));
        let error = self
            .error
            .as_ref()
            .map_or(0, |error| shared(error.message.len()));
        block(size_of::<Self>()) + self.artifacts.len() * ARTIFACT_BYTES + used + validator + error
    }
}

#[derive(Serialize, Deserialize)]
struct AnswerHead {
    contract: String,
    made_at: Timestamp,
    fresh_until: Timestamp,
    hard_until: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    confirm_always: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validator: Option<Arc<str>>,
    cost_us: u64,
    upstream_calls: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<StoredError>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<ArtifactRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    used: Vec<UsedGrant>,
}

/// Adds the tags of credentials to a location.
///
/// So a purge of the answers made with one of them covers this answer.
fn marked(location: Arc<Location>, used: &[UsedGrant]) -> Arc<Location> {
    let tags = used
        .iter()
        .map(|one| credential_tag(&one.grant.name))
        .filter(|tag| !location.tags.contains(tag));
    let tags: BTreeSet<String> = tags.collect();
    if tags.is_empty() {
        return location;
    }
    let tags = location.tags.iter().cloned().chain(tags).collect();
    Arc::new(Location {
        tags,
        ..(*location).clone()
    })
}

/// The times of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) made_at: Timestamp,
    pub(crate) fresh_until: Timestamp,
    pub(crate) hard_until: Timestamp,
}

impl Answer {
    pub(crate) fn new(
        location: Arc<Location>,
        outcome: &Outcome,
        times: Times,
        cost: Duration,
        upstream_calls: u32,
    ) -> Self {
        Self {
            location: marked(location, &outcome.remark.used),
            output: outcome.output.clone(),
            extras: Extras {
                error: None,
                artifacts: Arc::clone(&outcome.artifacts),
                validator: outcome.remark.validator.clone(),
                used: outcome.remark.used.clone(),
            }
            .boxed(),
            made_at: times.made_at,
            fresh_until: times.fresh_until,
            hard_until: times.hard_until,
            confirm_always: outcome.remark.confirm_always,
            cost_us: micros(cost),
            upstream_calls,
            invalid: AtomicBool::new(false),
            read: AtomicBool::new(false),
        }
    }

    /// Makes an answer of an error.
    pub(crate) fn of_error(
        location: Arc<Location>,
        error: &Error,
        times: Times,
        cost: Duration,
    ) -> Self {
        Self {
            location,
            output: Json::from_trusted(Bytes::from_static(b"null")),
            extras: Extras {
                error: Some(StoredError::new(error)),
                ..Extras::default()
            }
            .boxed(),
            made_at: times.made_at,
            fresh_until: times.fresh_until,
            hard_until: times.hard_until,
            confirm_always: false,
            cost_us: micros(cost),
            upstream_calls: 0,
            invalid: AtomicBool::new(false),
            read: AtomicBool::new(false),
        }
    }

    /// Returns the same answer, revalidated.
    ///
    /// It has new times, a new validator if there is one, and the grants that were used to confirm
    /// it.
    pub(crate) fn renewed(
        &self,
        validator: Option<Arc<str>>,
        times: Times,
        confirmed_with: &[UsedGrant],
    ) -> Self {
        let known = self.extras();
        let mut used = known.used.clone();
        used.extend(
            confirmed_with
                .iter()
                .filter(|one| !known.used.contains(one))
                .cloned(),
        );
        Self {
            location: marked(Arc::clone(&self.location), &used),
            output: self.output.clone(),
            extras: Extras {
                error: None,
                artifacts: Arc::clone(&known.artifacts),
                validator: validator.or_else(|| known.validator.clone()),
                used,
            }
            .boxed(),
            made_at: times.made_at,
            fresh_until: times.fresh_until,
            hard_until: times.hard_until,
            confirm_always: self.confirm_always,
            cost_us: self.cost_us,
            upstream_calls: self.upstream_calls,
            invalid: AtomicBool::new(false),
            read: AtomicBool::new(false),
        }
    }

    /// Returns what only some answers have.
    pub(crate) fn extras(&self) -> &Extras {
        static NONE: LazyLock<Extras> = LazyLock::new(Extras::default);
        self.extras.as_deref().unwrap_or_else(|| &NONE)
    }

    /// Returns the duration of the handler: the time that a hit saves.
    pub(crate) const fn cost(&self) -> Duration {
        Duration::from_micros(self.cost_us)
    }

    pub(crate) fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Acquire)
    }

    pub(crate) fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    /// Notes that the answer was read.
    pub(crate) fn note_read(&self) {
        self.read.store(true, Ordering::Relaxed);
    }

    /// Returns whether the answer was read since the last time.
    pub(crate) fn take_read(&self) -> bool {
        self.read.swap(false, Ordering::Relaxed)
    }

    /// Returns the memory that the answer takes.
    pub(super) fn weight(&self) -> usize {
        let Namespace {
            tenant,
            subject,
            session,
        } = &self.location.namespace;
        let names = shared(tenant.len())
            + shared(subject.len())
            + session.as_ref().map_or(0, |session| shared(session.len()));
        let tag = |tag: &String| size_of::<String>() + block(tag.len());
        let tags = if self.location.tags.is_empty() {
            0
        } else {
            shared(self.location.tags.iter().map(tag).sum())
        };
        let length = self.output.bytes().len();
        // Once the output's bytes are shared, they have their own counter.
        let output = block(length)
            + block(3 * size_of::<usize>())
            + if length < COPY_BELOW { 0 } else { HEAD_BYTES };
        let extras = self.extras.as_ref().map_or(0, |extras| extras.weight());
        shared(size_of::<Self>()) + shared(size_of::<Location>()) + names + tags + output + extras
    }

    /// Returns the plaintext that is sealed: format, length of the head, head, output.
    pub(crate) fn encode(&self, contract: &str) -> Bytes {
        let Extras {
            error,
            artifacts,
            validator,
            used,
        } = self.extras();
        let head = AnswerHead {
            contract: contract.to_owned(),
            made_at: self.made_at,
            fresh_until: self.fresh_until,
            hard_until: self.hard_until,
            confirm_always: self.confirm_always,
            validator: validator.clone(),
            cost_us: self.cost_us,
            upstream_calls: self.upstream_calls,
            error: error.clone(),
            artifacts: artifacts.to_vec(),
            used: used.clone(),
        };
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let mut bytes = BytesMut::with_capacity(5 + head.len() + self.output.bytes().len());
        bytes.put_u8(FORMAT);
        bytes.put_u32(u32::try_from(head.len()).unwrap_or(0));
        bytes.put_slice(&head);
        bytes.put_slice(self.output.bytes());
        bytes.freeze()
    }

    /// Decodes the bytes of [`Answer::encode`].
    ///
    /// Returns `None` (a miss) if they are of another format or contract, or damaged.
    pub(crate) fn decode(location: Arc<Location>, contract: &str, bytes: &Bytes) -> Option<Self> {
        let (&format, rest) = bytes.split_first()?;
        let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let head_bytes = rest.get(4..4 + length)?;
        if format != FORMAT {
            return None;
        }
        let head: AnswerHead = serde_json::from_slice(head_bytes).ok()?;
        if head.contract != contract {
            return None;
        }
        // The seal authenticates these bytes: they were JSON when they were encoded.
        let output = bytes.slice(5 + length..);
        let output = if output.len() < COPY_BELOW {
            Bytes::copy_from_slice(&output)
        } else {
            output
        };
        Some(Self {
            location: marked(location, &head.used),
            output: Json::from_trusted(output),
            extras: Extras {
                error: head.error,
                artifacts: head.artifacts.into(),
                validator: head.validator,
                used: head.used,
            }
            .boxed(),
            made_at: head.made_at,
            fresh_until: head.fresh_until,
            hard_until: head.hard_until,
            confirm_always: head.confirm_always,
            cost_us: head.cost_us,
            upstream_calls: head.upstream_calls,
            invalid: AtomicBool::new(false),
            read: AtomicBool::new(false),
        })
    }

    /// Returns the outcome of the answer, which is fresh until `fresh_until` today.
    ///
    /// # Errors
    /// The error that is stored instead of an output.
    pub(crate) fn outcome(
        &self,
        status: CacheStatus,
        now: Timestamp,
        fresh_until: Timestamp,
    ) -> Result<Outcome> {
        let Extras {
            error,
            artifacts,
            used,
            ..
        } = self.extras();
        if let Some(stored) = error {
            return Err(Error::new(stored.code, stored.message.to_string()));
        }
        Ok(Outcome {
            pack: self.location.pack.clone(),
            version: self.location.version,
            output: self.output.clone(),
            artifacts: Arc::clone(artifacts),
            duration: Duration::ZERO,
            session_id: None,
            cache: Some(CacheInfo {
                status,
                age: now.since(self.made_at),
                ttl: fresh_until.since(self.made_at),
                key: self.location.key.short(),
                store_error: None,
                reason: None,
                not_kept: None,
                retry_after: None,
            }),
            pending: false,
            remark: Remark {
                used: used.clone(),
                ..Remark::default()
            },
        })
    }
}
