//! Operations on a store, and their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::Timestamp;

use crate::entry::{Entry, EntryMeta, Kind, Namespace, Reach};
use crate::error::Result;

/// Write of an entry.
#[derive(Debug, Clone)]
pub struct Put {
    /// The namespace.
    pub namespace: Namespace,
    /// The kind.
    pub kind: Kind,
    /// Its name within namespace and kind; 1 byte to 1 KiB of any text.
    pub key: String,
    /// The value; up to 1 MiB by default (a cached answer: as its pack says), may be empty.
    pub value: Bytes,
    /// Category.
    pub category: String,
    /// Tags to purge by.
    pub tags: Vec<String>,
    /// Clear facts for tools.
    pub attributes: BTreeMap<String, String>,
    /// Lifetime from now on; `None` = forever. A time beyond the year 9999 counts as forever.
    pub ttl: Option<Duration>,
    /// Write only if the entry is at this version (0 = absent). `None` = whatever is there.
    pub expect_version: Option<u64>,
    /// The entry as it was elsewhere, for imports; `ttl` is then of no effect. `None` = it is made
    /// now.
    pub restore: Option<Restore>,
}

/// Version and times that an imported entry keeps.
///
/// It is written only if the entry is absent or was last replaced earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restore {
    /// Its version.
    pub version: u64,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last replacement.
    pub updated_at: Timestamp,
    /// Expiry; `None` = never. The retention of its kind may set an earlier one.
    pub expires_at: Option<Timestamp>,
}

impl Put {
    /// Makes a write without category, tags, attributes, end or condition.
    pub fn new(
        namespace: Namespace,
        kind: Kind,
        key: impl Into<String>,
        value: impl Into<Bytes>,
    ) -> Self {
        Self {
            namespace,
            kind,
            key: key.into(),
            value: value.into(),
            category: String::new(),
            tags: Vec::new(),
            attributes: BTreeMap::new(),
            ttl: None,
            expect_version: None,
            restore: None,
        }
    }

    /// Makes a write that expires an entry: for its writer, which takes the entry back.
    ///
    /// `version` and `updated_at` come from the answer to the first write. A later entry in its
    /// place stays, also at the same version (as after a delete): the write is then refused with
    /// `VersionMismatch` or `NotNewer`.
    pub fn ending(
        namespace: Namespace,
        kind: Kind,
        key: impl Into<String>,
        version: u64,
        updated_at: Timestamp,
    ) -> Self {
        let after = Timestamp(updated_at.micros().saturating_add(1));
        let ended = Restore {
            version,
            created_at: updated_at,
            updated_at: after,
            expires_at: Some(updated_at),
        };
        Self {
            expect_version: Some(version),
            restore: Some(ended),
            ..Self::new(namespace, kind, key, Bytes::new())
        }
    }
}

/// Selection of a delete. It works on raw rows and never decrypts, so it works after a lost key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delete {
    /// One entry; no error if it is absent.
    Key {
        /// The namespace.
        namespace: Namespace,
        /// The kind.
        kind: Kind,
        /// Its exact key.
        key: String,
    },
    /// Every entry whose key starts with a prefix (literally, case-sensitive; empty = all).
    Prefix {
        /// The namespace; `None` = all.
        namespace: Option<Namespace>,
        /// The kind; `None` = all.
        kind: Option<Kind>,
        /// The prefix.
        prefix: String,
    },
    /// Every entry with a tag.
    Tagged {
        /// The namespace.
        whose: Reach,
        /// The kind.
        kind: Kind,
        /// The exact tag.
        tag: String,
    },
}

/// One operation of a batch.
#[derive(Debug, Clone)]
pub enum Op {
    /// Write.
    Put(Put),
    /// Delete.
    Delete(Delete),
}

/// Result of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The entry as it is now, without its value.
    Put(Box<EntryMeta>),
    /// Number of deleted entries, including expired ones that were still stored.
    Deleted(u64),
}

impl Written {
    /// Returns the number of rows that operations deleted.
    #[must_use]
    pub fn deleted(done: &[Self]) -> u64 {
        done.iter()
            .map(|done| {
                if let Self::Deleted(count) = done {
                    *count
                } else {
                    0
                }
            })
            .sum()
    }
}

/// Start of a page: opaque, made by the store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// Page request of a list.
#[derive(Debug, Clone)]
pub struct Page {
    /// Limit of entries, 1 to 1000.
    pub limit: usize,
    /// Where the page starts; `None` = at the newest.
    pub after: Option<Cursor>,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            limit: 100,
            after: None,
        }
    }
}

/// One page of a list.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// The entries, newest `updated_at` first, ties by key.
    pub entries: Vec<EntryMeta>,
    /// Where the next page starts; `None` = this was the last.
    pub next: Option<Cursor>,
}

/// Order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By key, byte for byte, ascending.
    KeyAscending,
    /// By key, byte for byte, descending.
    KeyDescending,
    /// By `updated_at`, newest first, ties by key ascending: the order of a list.
    NewestFirst,
}

/// Result of a scan.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// The entries with their values.
    pub entries: Vec<Entry>,
    /// Number of rows that did not open and were left out.
    pub unreadable: u64,
}

/// Position of a walk over all rows: opaque, made by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(pub String);

/// Row that a walk visited.
#[derive(Debug, Clone)]
pub struct Walked {
    /// Metadata of the row; it may have expired.
    pub meta: EntryMeta,
    /// The id of its key; empty if it is not sealed.
    pub key_id: String,
    /// The value, or why it does not open.
    pub value: Result<Bytes, &'static str>,
}

/// Part of a walk.
#[derive(Debug, Clone, Default)]
pub struct Walk {
    /// The rows, in no particular order.
    pub rows: Vec<Walked>,
    /// Where the next part starts; `None` = this was the last.
    pub next: Option<Mark>,
}

/// Result of a step of a rotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Number of rows now sealed with the current key.
    pub rows: u64,
    /// Number of rows that no key of the ring opens; they are left unchanged.
    pub unreadable: u64,
    /// Where the next step starts; `None` = every row was looked at.
    pub next: Option<Mark>,
}

/// Change to the store by another process or replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A delete.
    Deleted(Delete),
    /// Any change is possible: notifications were lost, for example with the connection.
    Anything,
    /// No change: everything before it was sent ([`crate::CaughtUp::Mark`]).
    Mark(u64),
}

/// Changes by other processes. A subscriber that lagged must assume [`Change::Anything`].
///
/// PostgreSQL sends them itself; a message bus (NATS) can be another source.
pub type Changes = tokio::sync::broadcast::Receiver<Change>;

/// Totals of one kind in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NamespaceStats {
    /// The namespace.
    #[serde(flatten)]
    pub namespace: Namespace,
    /// The kind.
    pub kind: Kind,
    /// Number of live entries.
    pub rows: u64,
    /// Size in bytes: see [`EntryMeta::cost`].
    pub bytes: u64,
}

/// Totals and state of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The driver's name.
    pub driver: &'static str,
    /// Number of live rows.
    pub rows: u64,
    /// Number of expired rows that wait for the sweep.
    pub expired: u64,
    /// Size of all rows in bytes: see [`EntryMeta::cost`].
    pub bytes: u64,
    /// Bytes on disk, 0 without a file.
    pub disk_bytes: u64,
    /// Rows per key id; the empty id stands for rows that are not sealed.
    pub rows_by_key_id: BTreeMap<String, u64>,
    /// Rows per kind.
    pub rows_by_kind: BTreeMap<String, u64>,
    /// Size of the live rows of each kind in bytes: see [`EntryMeta::cost`].
    pub bytes_by_kind: BTreeMap<String, u64>,
}
