//! Requests to a driver: pending writes, ranges and positions, with logic that all drivers share.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Timestamp;

use crate::entry::{EntryMeta, Kind, Namespace, Quota};
use crate::error::{Result, StoreError};
use crate::ops::{Cursor, Delete, ListPage, Put, Restore};
use crate::sealed::{Seal, SealedValue};
use crate::sieve::Reads;

/// The caller of namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceOwner {
    /// Its tenant.
    pub tenant: String,
    /// Its subject.
    pub subject: String,
}

/// Canary: a row that proves which key a store was written with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canary {
    /// The id of the key.
    pub key_id: String,
    /// A known text, sealed with it.
    pub sealed: Vec<u8>,
}

/// Pending write: checked against the limits, and resolved except for the stored row.
#[derive(Debug, Clone)]
pub struct PendingWrite {
    /// The write.
    pub put: Put,
    /// The fingerprint of its plaintext.
    pub fingerprint: String,
    /// Expiry.
    pub expires_at: Option<Timestamp>,
    /// The value sealed as a new entry, before the driver's turn. Valid only if no live row exists.
    pub fresh: Option<SealedValue>,
}

/// Version and times of the row that a pending write replaces.
#[derive(Debug, Clone, Copy)]
pub struct Existing {
    /// Its version.
    pub version: u64,
    /// Time of its first write.
    pub created_at: Timestamp,
    /// Time of the last replacement.
    pub updated_at: Timestamp,
}

impl PendingWrite {
    /// Resolves the write against the live row (`None` = absent or expired).
    ///
    /// # Errors
    /// `VersionMismatch` if the writer expected another version; `NotNewer` if the pending write
    /// restores and what is there is not older.
    pub fn resolve(
        &self,
        existing: Option<Existing>,
        now: Timestamp,
        overhead: u64,
    ) -> Result<EntryMeta> {
        let found = existing.map_or(0, |row| row.version);
        if let Some(expected) = self.put.expect_version
            && expected != found
        {
            return Err(StoreError::VersionMismatch { expected, found });
        }
        let made = Restore {
            version: found.saturating_add(1),
            created_at: existing.map_or(now, |row| row.created_at),
            updated_at: now,
            expires_at: self.expires_at,
        };
        let times = match self.put.restore {
            Some(restore) if existing.is_some_and(|row| row.updated_at >= restore.updated_at) => {
                return Err(StoreError::NotNewer);
            }
            Some(restore) => Restore {
                expires_at: self.expires_at,
                ..restore
            },
            None => made,
        };
        Ok(EntryMeta {
            namespace: self.put.namespace.clone(),
            kind: self.put.kind,
            key: self.put.key.clone(),
            category: self.put.category.clone(),
            tags: self.put.tags.clone(),
            attributes: self.put.attributes.clone(),
            fingerprint: self.fingerprint.clone(),
            // Drivers keep it as a signed number, and the seal binds what they give back.
            version: times.version.clamp(1, i64::MAX.unsigned_abs()),
            created_at: times.created_at,
            updated_at: times.updated_at,
            expires_at: times.expires_at,
            size: self.put.value.len() as u64 + overhead,
        })
    }

    /// Returns the sealed value of what [`PendingWrite::resolve`] settled.
    ///
    /// # Errors
    /// As [`Seal::seal`].
    pub fn seal(
        &self,
        meta: &EntryMeta,
        is_new: bool,
        seal: &dyn Seal,
    ) -> Result<Cow<'_, SealedValue>> {
        match &self.fresh {
            // The version and the times of a new entry are known beforehand: nothing else was left
            // open.
            Some(sealed) if is_new => Ok(Cow::Borrowed(sealed)),
            _ => seal.seal(meta, &self.put.value).map(Cow::Owned),
        }
    }
}

/// Operation of a batch for a driver.
#[derive(Debug, Clone)]
pub enum PendingOp {
    /// Write.
    Put(Box<PendingWrite>),
    /// Delete, and count it in the generation.
    Delete(Delete),
    /// Delete expired rows, up to a limit. Not counted in the generation: they were invisible
    /// before.
    Sweep(usize),
    /// Delete rows of a kind, as [`crate::sieve`] chooses them, until its rows take at most
    /// `bytes`.
    ///
    /// Deletes at most `limit` rows, each time from the largest namespace of this kind. Not counted
    /// in the generation: the deleted answers were valid.
    Evict {
        /// The kind.
        kind: Kind,
        /// What its rows may take, ended or not.
        bytes: u64,
        /// Limit of rows to delete.
        limit: usize,
    },
}

impl PendingOp {
    /// Returns whether the operation touches a kind that must survive a power cut.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        match self {
            Self::Put(pending) => pending.put.kind.is_durable(),
            Self::Delete(Delete::Key { kind, .. } | Delete::Tagged { kind, .. }) => {
                kind.is_durable()
            }
            Self::Delete(Delete::Prefix { kind, .. }) => kind.is_none_or(Kind::is_durable),
            Self::Sweep(_) | Self::Evict { .. } => false,
        }
    }

    /// Returns the approximate size of the waiting operation in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Put(pending) => 512 + pending.put.key.len() + pending.put.value.len(),
            Self::Delete(_) | Self::Sweep(_) | Self::Evict { .. } => 512,
        }
    }
}

/// Batch for a driver: it is applied as a whole or not at all.
#[derive(Clone)]
pub struct Batch {
    /// The operations, in order.
    pub ops: Vec<PendingOp>,
    /// The time of the write; what was sealed before the driver's turn was sealed for this time.
    pub now: Timestamp,
    /// How values are sealed.
    pub seal: Arc<dyn Seal>,
    /// Limit of rows and bytes of a namespace, for each kind.
    pub quotas: Quotas,
    /// Cached answers that this process read: an eviction writes down those of its key space.
    pub reads: Arc<Reads>,
}

/// The quota of each kind.
#[derive(Debug, Clone, Copy)]
pub struct Quotas([Quota; Kind::ALL.len()]);

impl Quotas {
    /// Makes the quotas from a function of the kind.
    #[must_use]
    pub fn new(of: impl Fn(Kind) -> Quota) -> Self {
        Self(Kind::ALL.map(of))
    }

    /// Returns the quota of a kind.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> Quota {
        self.0[kind as usize]
    }
}

helmdeck_core::redacted_debug!(Batch, this => ops = this.ops.len(), now = this.now);

/// Range of keys in a key space, at a time.
#[derive(Debug, Clone)]
pub struct Range {
    /// The namespace.
    pub namespace: Namespace,
    /// The kind.
    pub kind: Kind,
    /// Prefix of the keys.
    pub prefix: String,
    /// The time: rows expired by then are invisible.
    pub now: Timestamp,
}

/// Position in a list: after this time and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The `updated_at` of the last entry of the previous page.
    pub updated_at: Timestamp,
    /// Its key.
    pub key: String,
}

impl Position {
    /// Returns the cursor that stands for the position.
    #[must_use]
    pub fn to_cursor(&self) -> Cursor {
        Cursor(format!("{}:{}", self.updated_at.micros(), self.key))
    }

    /// Reads a cursor.
    ///
    /// # Errors
    /// `Invalid` if no store made it.
    pub fn parse(cursor: &Cursor) -> Result<Self> {
        let parts = cursor
            .0
            .split_once(':')
            .and_then(|(micros, key)| Some((micros.parse().ok()?, key)));
        let (micros, key) =
            parts.ok_or(StoreError::Invalid("the cursor was not made by a store"))?;
        Ok(Self {
            updated_at: Timestamp(micros),
            key: key.to_owned(),
        })
    }
}

/// Makes a page of at most `limit` entries. One entry more in `entries` shows that a next page
/// exists.
#[must_use]
pub fn page_of(mut entries: Vec<EntryMeta>, limit: usize) -> ListPage {
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| more).map(|last| {
        Position {
            updated_at: last.updated_at,
            key: last.key.clone(),
        }
        .to_cursor()
    });
    ListPage { entries, next }
}

/// Returns the smallest text that is greater than every text with this prefix, `None` if there is
/// none.
///
/// UTF-8 sorts by code point, so the last character that can be raised is raised and the rest cut
/// off.
#[must_use]
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // A range steps over the surrogates, which are no characters.
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// Returns when an entry expires, `None` for never or beyond the year 9999.
#[must_use]
pub fn end_of(now: Timestamp, ttl: Option<Duration>) -> Option<Timestamp> {
    // 9999-12-31T23:59:59.999999Z
    const LAST: Timestamp = Timestamp(253_402_300_799_999_999);
    ttl.map(|ttl| now.saturating_add(ttl))
        .filter(|end| *end <= LAST)
}

/// Size of values in bytes after which a part of a walk ends.
pub const WALK_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_next_text() {
        assert_eq!(prefix_end("ab").as_deref(), Some("ac"));
        assert_eq!(prefix_end("a%").as_deref(), Some("a&"));
        assert_eq!(prefix_end("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(prefix_end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(prefix_end("\u{10ffff}"), None);
        assert_eq!(prefix_end(""), None);
    }

    #[test]
    fn a_life_beyond_the_year_9999_is_for_ever() {
        assert_eq!(
            end_of(Timestamp(5), Some(Duration::from_micros(7))),
            Some(Timestamp(12))
        );
        assert_eq!(end_of(Timestamp(5), None), None);
        assert_eq!(end_of(Timestamp(5), Some(Duration::MAX)), None);
        assert_eq!(
            end_of(Timestamp(0), Some(Duration::from_secs(253_402_300_800))),
            None
        );
    }

    #[test]
    fn a_cursor_gives_back_its_position() {
        for key in ["k", "a:b", "", "\0", "😀"] {
            let position = Position {
                updated_at: Timestamp(-7),
                key: key.into(),
            };
            assert_eq!(Position::parse(&position.to_cursor()).unwrap(), position);
        }
        assert!(Position::parse(&Cursor("nonsense".into())).is_err());
        assert!(Position::parse(&Cursor("x:y".into())).is_err());
    }
}
