//! The two traits that every store implements: [`ReadStore`], and [`Store`] on top of it.
//!
//! The split is on purpose: who is only given a [`ReadStore`] (the process seam) cannot write, by type.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::entry::{Entry, EntryMeta, Kind, Namespace};
use crate::error::Result;

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
        }
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
        /// Whose; `None` = of everybody.
        namespace: Option<Namespace>,
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
}

/// What a scan found.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// The entries with their values.
    pub entries: Vec<Entry>,
    /// How many rows did not open and were left out.
    pub unreadable: u64,
}

/// What one namespace holds of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceStats {
    /// Whose.
    pub namespace: Namespace,
    /// Of which kind.
    pub kind: Kind,
    /// Live entries.
    pub rows: u64,
    /// Bytes of their stored values.
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
    /// Bytes of all stored values.
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
            _ => Err(crate::StoreError::Corrupt("a write answered with something else".to_owned())),
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
            _ => Err(crate::StoreError::Corrupt("a delete answered with something else".to_owned())),
        }
    }

    /// Deletes rows that have ended, at most `limit`, and says how many went. Never races with a put of the same key.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn sweep_expired(&self, limit: usize) -> Result<u64>;

    /// Returns what was written so far to disk and gives everything back; later calls answer `Closed`.
    ///
    /// # Errors
    /// `Unavailable` if something could not be written.
    async fn close(&self) -> Result<()>;
}
