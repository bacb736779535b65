//! Entries of the store, with their namespaces and kinds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use helmdeck_core::clock::rfc3339;
use helmdeck_core::{Identity, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::{Result, StoreError};

/// Kind of an entry: a separate key space with its own retention, so no fact can plant a cached
/// answer.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An answer of a pack.
    Cache,
    /// A note of a handler.
    Note,
    /// A fact about a caller.
    Fact,
    /// An audit row of a call.
    Audit,
    /// A turn of a conversation.
    Conversation,
    /// A head: what other rows of its namespace are compared with, to see that one is missing or
    /// was put back.
    Head,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Cache,
        Self::Note,
        Self::Fact,
        Self::Audit,
        Self::Conversation,
        Self::Head,
    ];

    /// Returns the name, in the store and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Reads a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Returns whether a write of this kind must survive a power cut: what cannot be computed again
    /// must.
    ///
    /// A head is as durable as the rows that are written with it.
    #[must_use]
    pub const fn is_durable(self) -> bool {
        matches!(self, Self::Note | Self::Fact | Self::Conversation)
    }

    /// Returns whether a full namespace drops an entry of this kind for a new one.
    ///
    /// The other kinds refuse the new entry.
    #[must_use]
    pub const fn makes_room(self) -> bool {
        matches!(self, Self::Cache | Self::Audit)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Owner of an entry: three parts kept apart, never a joined string.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Namespace {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The user, or the empty text for what a whole tenant shares.
    pub subject: Arc<str>,
    /// The conversation, if the entry belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
}

impl Namespace {
    /// Makes a namespace of its parts.
    #[must_use]
    pub fn new(tenant: &str, subject: &str, session: Option<&str>) -> Self {
        Self {
            tenant: tenant.into(),
            subject: subject.into(),
            session: session.map(Into::into),
        }
    }

    /// Returns the namespace of a caller, whatever the conversation.
    #[must_use]
    pub fn of_caller(identity: &Identity) -> Self {
        Self::new(identity.tenant(), identity.user(), None)
    }
}

/// Scope of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Entries of all callers.
    Everybody,
    /// Entries of one namespace.
    One(Namespace),
    /// Entries that a caller can reach: its own, in any conversation, and those shared by its
    /// tenant.
    Caller {
        /// The tenant.
        tenant: Arc<str>,
        /// The user.
        subject: Arc<str>,
    },
}

impl Reach {
    /// Returns the reach of a caller.
    #[must_use]
    pub fn of_caller(identity: &Identity) -> Self {
        Self::Caller {
            tenant: identity.tenant().into(),
            subject: identity.user().into(),
        }
    }

    /// Returns whether it covers the entries of a namespace.
    #[must_use]
    pub fn covers(&self, namespace: &Namespace) -> bool {
        match self {
            Self::Everybody => true,
            Self::One(one) => one == namespace,
            Self::Caller { tenant, subject } => {
                *tenant == namespace.tenant
                    && (namespace.subject.is_empty() || *subject == namespace.subject)
            }
        }
    }
}

/// Bytes of a row besides its fields of variable length: columns, indexes and unused page space.
///
/// Measured with SQLite, so that the file with its log stays within the count (`helmdeck-bench
/// scale-cap`).
const ROW_BYTES: u64 = 268;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The metadata.
    pub meta: EntryMeta,
    /// The value.
    pub value: Bytes,
}

/// An entry without its value. It is stored in the clear, and the seal binds it to the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryMeta {
    /// The namespace of its owner.
    #[serde(flatten)]
    pub namespace: Namespace,
    /// The kind.
    pub kind: Kind,
    /// Its name within namespace and kind.
    pub key: String,
    /// Category; may be empty.
    pub category: String,
    /// Tags to purge by, in the given order.
    pub tags: Vec<String>,
    /// Clear attributes that tools may show without the key, such as digests of the parts of a
    /// cache key.
    pub attributes: BTreeMap<String, String>,
    /// The first 16 hex digits of SHA-256 of the plaintext, or of an HMAC if the store is
    /// configured so.
    pub fingerprint: String,
    /// 1 for a new entry, one more for each replacement.
    pub version: u64,
    /// Creation time; kept by replacements.
    #[serde(with = "rfc3339")]
    pub created_at: Timestamp,
    /// Time of the last replacement.
    #[serde(with = "rfc3339")]
    pub updated_at: Timestamp,
    /// Expiry; `None` = never. An entry with `now >= expires_at` is invisible.
    #[serde(serialize_with = "rfc3339::optional")]
    pub expires_at: Option<Timestamp>,
    /// The bytes of the value, as stored (a sealed value is 16 bytes longer than its plaintext).
    pub size: u64,
}

impl EntryMeta {
    /// Returns the approximate size of the entry on disk in bytes. Quotas count this.
    ///
    /// It is the value, the other fields (key and tags twice, because they are indexed), and the
    /// fixed cost of a row.
    #[must_use]
    pub fn cost(&self) -> u64 {
        let tags: usize = self.tags.iter().map(|tag| 2 * tag.len() + 24).sum();
        let attributes: usize = self
            .attributes
            .iter()
            .map(|(name, value)| name.len() + value.len() + 6)
            .sum();
        let fields = 2 * self.key.len() + self.category.len() + tags + attributes;
        self.size
            .saturating_add(fields as u64)
            .saturating_add(ROW_BYTES)
    }

    /// Returns whether the entry has expired.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| now >= end)
    }
}

/// Limit of rows and bytes ([`EntryMeta::cost`]) of one kind in one namespace.
///
/// When a put would exceed it, expired rows of the namespace and kind are dropped first. Then, if
/// the kind makes room ([`Kind::makes_room`]), some of its rows are dropped: of kind `cache` as
/// [`crate::sieve`] chooses them, of kind `audit` the oldest. Otherwise the put is refused.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Quota {
    /// Checks what a namespace would hold after a write.
    ///
    /// # Errors
    /// `QuotaExceeded`.
    pub const fn check(&self, rows: u64, bytes: u64) -> Result<()> {
        if rows > self.rows {
            return Err(StoreError::QuotaExceeded {
                what: "rows",
                limit: self.rows,
            });
        }
        if bytes > self.bytes {
            return Err(StoreError::QuotaExceeded {
                what: "bytes",
                limit: self.bytes,
            });
        }
        Ok(())
    }
}

/// Fingerprint algorithm of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fingerprint {
    /// The first 16 hex digits of SHA-256 of the plaintext, the same in every store for comparison.
    ///
    /// Anyone with the file can confirm a guessed value.
    Plain,
    /// The first 16 hex digits of an HMAC under a key of the namespace: nobody without the key can
    /// confirm a guess.
    ///
    /// Without a key (a plain store) the same as `Plain`.
    #[default]
    Keyed,
}
