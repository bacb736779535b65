//! The two traits that every store implements: [`ReadStore`], and [`Store`] on top of it.
//!
//! The split is on purpose: who is only given a [`ReadStore`] (the process seam) cannot write, by type.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_core::Timestamp;

use crate::entry::{Entry, EntryMeta, Kind, Namespace, Reach};
use crate::error::{Result, StoreError};
use crate::lock::Lock;
use crate::sealed::{RawRow, Seal};

/// What to write.
#[derive(Debug, Clone)]
pub struct Put {
    /// Whose it is.
    pub namespace: Namespace,
    /// What it is for.
    pub kind: Kind,
    /// Its name within namespace and kind; 1 byte to 1 KiB of any text.
    pub key: String,
    /// The value; up to 1 MiB by default, may be empty.
    pub value: Bytes,
    /// A word to group entries by.
    pub category: String,
    /// Labels to purge by.
    pub tags: Vec<String>,
    /// Clear facts for tools.
    pub attributes: BTreeMap<String, String>,
    /// How long it lives from now on; `None` = for ever. A time beyond the year 9999 counts as for ever.
    pub ttl: Option<Duration>,
    /// Write only if the entry is at this version (0 = absent). `None` = whatever is there.
    pub expect_version: Option<u64>,
    /// The entry as it was elsewhere, for imports; `ttl` is then of no effect. `None` = it is made now.
    pub restore: Option<Restore>,
}

/// What an imported entry keeps of its former life. It is written only over an absent entry or one last replaced before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restore {
    /// Its version.
    pub version: u64,
    /// When it came to be.
    pub created_at: Timestamp,
    /// When it was last replaced.
    pub updated_at: Timestamp,
    /// When it ends; `None` = never. The retention of its kind may end it earlier.
    pub expires_at: Option<Timestamp>,
}

impl Put {
    /// Makes a write without category, tags, attributes, end or condition.
    pub fn new(namespace: Namespace, kind: Kind, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
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

    /// Makes a write that ends an entry from within, by putting nothing in its place: for whoever wrote it and knows by now that
    /// it should not have been. `version` and `updated_at` are what its own write answered; an entry that was made in its place
    /// later stays, also at the same version, as after a delete.
    ///
    /// It is refused with `VersionMismatch` or `NotNewer` if what is there, if anything, is another entry.
    pub fn ending(
        namespace: Namespace,
        kind: Kind,
        key: impl Into<String>,
        version: u64,
        updated_at: Timestamp,
    ) -> Self {
        let after = Timestamp(updated_at.micros().saturating_add(1));
        let ended = Restore { version, created_at: updated_at, updated_at: after, expires_at: Some(updated_at) };
        Self { expect_version: Some(version), restore: Some(ended), ..Self::new(namespace, kind, key, Bytes::new()) }
    }
}

/// What to delete. Deleting works on raw rows and never decrypts, so forgetting works after a lost key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delete {
    /// One entry; no error if it is absent.
    Key {
        /// Whose.
        namespace: Namespace,
        /// Of which kind.
        kind: Kind,
        /// Its exact key.
        key: String,
    },
    /// Every entry whose key starts with a prefix (literally, case-sensitive; empty = all).
    Prefix {
        /// Whose; `None` = of everybody.
        namespace: Option<Namespace>,
        /// Of which kind; `None` = of every kind.
        kind: Option<Kind>,
        /// The prefix.
        prefix: String,
    },
    /// Every entry with a tag.
    Tagged {
        /// Whose.
        whose: Reach,
        /// Of which kind.
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

/// What one operation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The entry as it is now, without its value.
    Put(Box<EntryMeta>),
    /// How many entries were deleted (expired ones that were still there count).
    Deleted(u64),
}

/// Where a page starts: opaque, made by the store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// Which part of a list is wanted.
#[derive(Debug, Clone)]
pub struct Page {
    /// The most entries, 1 to 1000.
    pub limit: usize,
    /// Where the page starts; `None` = at the newest.
    pub after: Option<Cursor>,
}

impl Default for Page {
    fn default() -> Self {
        Self { limit: 100, after: None }
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

/// In which order a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By key, byte for byte, ascending.
    KeyAscending,
    /// By key, byte for byte, descending.
    KeyDescending,
    /// By `updated_at`, newest first, ties by key ascending: the order of a list.
    NewestFirst,
}

/// What a scan found.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// The entries with their values.
    pub entries: Vec<Entry>,
    /// How many rows did not open and were left out.
    pub unreadable: u64,
}

/// How far a walk over all rows has come: opaque, made by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(pub String);

/// A row that a walk came by.
#[derive(Debug, Clone)]
pub struct Walked {
    /// What the row says about itself; it may have ended.
    pub meta: EntryMeta,
    /// The id of the key that it names; empty if it is not sealed.
    pub key_id: String,
    /// Its value, or why it does not open.
    pub value: Result<Bytes, &'static str>,
}

impl Walked {
    /// Opens a row that a walk came by.
    pub(crate) fn open(row: RawRow, seal: &Arc<dyn Seal>) -> Self {
        let (meta, key_id) = (row.meta.clone(), row.sealed.key_id.clone());
        let value = seal.open(row).map(|entry| entry.value).map_err(|error| match error {
            StoreError::Unreadable { reason } => reason,
            _ => "the seal could not be asked",
        });
        Self { meta, key_id, value }
    }
}

/// A part of a walk.
#[derive(Debug, Clone, Default)]
pub struct Walk {
    /// The rows, in no particular order.
    pub rows: Vec<Walked>,
    /// Where the next part starts; `None` = this was the last.
    pub next: Option<Mark>,
}

/// What a step of a rotation did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Rows that are now sealed with the current key.
    pub rows: u64,
    /// Rows that do not open with any key of the ring; they stay as they are.
    pub unreadable: u64,
    /// Where the next step starts; `None` = every row was looked at.
    pub next: Option<Mark>,
}

/// What somebody else (another process, another replica) did to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It deleted.
    Deleted(Delete),
    /// It may have done anything: news was lost, for example with the connection.
    Anything,
}

/// News of what others do to the store. Who is told that it lagged behind must take it for [`Change::Anything`].
///
/// PostgreSQL tells them itself; a message bus (NATS) can be another source.
pub type Changes = tokio::sync::broadcast::Receiver<Change>;

/// What one namespace holds of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceStats {
    /// Whose.
    pub namespace: Namespace,
    /// Of which kind.
    pub kind: Kind,
    /// Live entries.
    pub rows: u64,
    /// What they take: see [`EntryMeta::cost`].
    pub bytes: u64,
}

/// What a store holds and how it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The driver's name.
    pub driver: &'static str,
    /// Live rows.
    pub rows: u64,
    /// Rows that have ended and wait for the sweep.
    pub expired: u64,
    /// What all rows take: see [`EntryMeta::cost`].
    pub bytes: u64,
    /// Bytes on disk, 0 if there is none.
    pub disk_bytes: u64,
    /// Rows per key id; the empty id stands for rows that are not sealed.
    pub rows_by_key_id: BTreeMap<String, u64>,
    /// Rows per kind.
    pub rows_by_kind: BTreeMap<String, u64>,
}

/// A store that can be read.
#[async_trait]
pub trait ReadStore: Send + Sync + 'static {
    /// Returns a live entry, `None` if it is absent or has ended.
    ///
    /// # Errors
    /// `Unreadable` if the row does not open; `Unavailable`, `Closed`.
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>>;

    /// Lists live entries without their values, newest first; no decryption.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn list(&self, namespace: &Namespace, kind: Kind, prefix: &str, page: Page) -> Result<ListPage>;

    /// Returns live entries with their values whose key starts with `prefix`, at most `limit`. Rows that do not open are
    /// left out and counted.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn scan(&self, namespace: &Namespace, kind: Kind, prefix: &str, order: Order, limit: usize) -> Result<Scan>;

    /// Returns what each namespace holds of each kind: live rows only, most rows first, ties by name.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn namespaces(&self) -> Result<Vec<NamespaceStats>>;

    /// Returns totals.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn stats(&self) -> Result<Stats>;

    /// Returns a number that grows whenever anybody, in this process or another, deletes from the store. Cheap enough to
    /// be asked several times a second.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn generation(&self) -> Result<u64>;

    /// Walks over all rows of everybody, also those that have ended, opening each: at most `limit` rows and about 8 MiB. Rows
    /// that are written meanwhile may be seen or not.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`; `Invalid` for a mark of nobody.
    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk>;

    /// Returns news of what others delete, from now on; `None` if this store has none to give and [`ReadStore::generation`]
    /// has to be asked.
    fn changes(&self) -> Option<Changes> {
        None
    }

    /// Returns why the store cannot be used at all yet, `None` if it is open. Only a store that is opened later has such a time
    /// ([`crate::late`]).
    fn not_open(&self) -> Option<StoreError> {
        None
    }
}

/// A store that can be written.
#[async_trait]
pub trait Store: ReadStore {
    /// Writes one entry: a new one at version 1, or a replacement that keeps `created_at` and adds one to `version`.
    /// When it returns, the entry survives the end of this process.
    ///
    /// # Errors
    /// `VersionMismatch`, `TooLarge`, `QuotaExceeded`: nothing was written. `Unavailable`, `Closed`.
    async fn put(&self, put: Put) -> Result<EntryMeta> {
        match self.write(vec![Op::Put(put)]).await?.pop() {
            Some(Written::Put(meta)) => Ok(*meta),
            _ => Err(StoreError::Corrupt("a write answered with something else".to_owned())),
        }
    }

    /// Does all operations, in order, in one transaction: all of them or none.
    ///
    /// # Errors
    /// As [`Store::put`], for the first operation that fails.
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>>;

    /// Deletes, and says how many rows went.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn delete(&self, delete: Delete) -> Result<u64> {
        match self.write(vec![Op::Delete(delete)]).await?.pop() {
            Some(Written::Deleted(count)) => Ok(count),
            _ => Err(StoreError::Corrupt("a delete answered with something else".to_owned())),
        }
    }

    /// Deletes rows that have ended, at most `limit`, and says how many went. Never races with a put of the same key.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn sweep_expired(&self, limit: usize) -> Result<u64>;

    /// Deletes the oldest entries of kind `cache` until all of them together take no more than the configuration allows, at
    /// most `limit`, and says how many went. The namespace that takes most gives first, so that none loses its share to
    /// another.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn trim(&self, limit: usize) -> Result<u64>;

    /// Seals anew, with the current key, rows that another key of the ring sealed; looks at about `limit` rows after a mark.
    /// Versions and times stay as they are. Nothing is lost however it ends: each step is one transaction.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`; `Invalid` for a mark of nobody, or for a store without keys.
    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed>;

    /// Lets the store prove the current key from now on, the last step of a rotation: who comes with another key only is
    /// refused.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`; `Invalid` for a store without keys.
    async fn adopt_key(&self) -> Result<()>;

    /// Takes a lock that all processes on this store see, `None` if somebody has it. It is free again when it is released,
    /// after `hold`, or (where the store can tell) when its process is gone.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>>;

    /// Returns what was written so far to disk and gives everything back; later calls answer `Closed`.
    ///
    /// # Errors
    /// `Unavailable` if something could not be written.
    async fn close(&self) -> Result<()>;
}
