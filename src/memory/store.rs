//! Traits that every store implements: [`ReadStore`], [`Maintenance`], and [`Store`] on top of
//! both.
//!
//! Code that holds only a [`ReadStore`] (the process seam) cannot write, by type. A store around
//! another store implements [`StoreWrapper`], so a new method is forwarded in one place.

use std::time::Duration;

use async_trait::async_trait;

use crate::entry::{Entry, EntryMeta, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::lock::Lock;
use crate::ops::{
    Changes, Delete, ListPage, Mark, NamespaceStats, Op, Order, Page, Put, Resealed, Scan, Stats,
    Walk, Written,
};
use crate::position::{CaughtUp, DeletePosition};

/// A store that can be read.
#[async_trait]
pub trait ReadStore: Send + Sync + 'static {
    /// Returns a live entry, `None` if it is absent or expired.
    ///
    /// # Errors
    /// `Unreadable` if the row does not open; `Unavailable`, `Closed`.
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>>;

    /// Lists live entries without their values, newest first; no decryption.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn list(
        &self,
        namespace: &Namespace,
        kind: Kind,
        prefix: &str,
        page: Page,
    ) -> Result<ListPage>;

    /// Returns live entries with their values whose key starts with `prefix`, at most `limit`.
    ///
    /// Rows that do not open are left out and counted.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn scan(
        &self,
        namespace: &Namespace,
        kind: Kind,
        prefix: &str,
        order: Order,
        limit: usize,
    ) -> Result<Scan>;

    /// Returns the totals of live rows of each kind in each namespace, most rows first, ties by
    /// name.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn namespaces(&self) -> Result<Vec<NamespaceStats>>;

    /// As [`ReadStore::namespaces`], of one caller: all with this tenant and subject. It does not
    /// look at those of others.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn namespaces_of(&self, tenant: &str, subject: &str) -> Result<Vec<NamespaceStats>>;

    /// Returns totals.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn stats(&self) -> Result<Stats>;

    /// Returns a number that grows with every delete by any process.
    ///
    /// It is cheap enough for several calls a second.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn generation(&self) -> Result<u64>;

    /// Walks over the rows of all namespaces, including expired ones, and opens each.
    ///
    /// A call returns at most `limit` rows and about 8 MiB.
    ///
    /// Rows that are written meanwhile may be missing.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`; `Invalid` for a mark that no store made.
    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk>;

    /// Returns the changes by other processes from now on; `None` if this store sends none: poll
    /// [`ReadStore::generation`].
    fn changes(&self) -> Option<Changes> {
        None
    }

    /// Returns the position after the deletes of this process so far; `None` if this store has no
    /// positions, or cannot name this one.
    fn position(&self) -> Option<DeletePosition> {
        None
    }

    /// Reads the deletes by other processes up to a position, unless that was done.
    ///
    /// A position that was not signed with a key of this store stands for the moment of the call.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn catch_up(&self, _position: &DeletePosition) -> Result<CaughtUp> {
        Ok(CaughtUp::NoPositions)
    }

    /// Returns why the store is not open yet, `None` if it is open.
    ///
    /// Only a late store ([`crate::late`]) can be not open yet.
    fn not_open(&self) -> Option<StoreError> {
        None
    }
}

/// Maintenance of a store: for the janitor, and for a change of the key.
#[async_trait]
pub trait Maintenance: ReadStore {
    /// Deletes expired rows, at most `limit`, and returns how many. Never races with a put of the
    /// same key.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn sweep_expired(&self, limit: usize) -> Result<u64>;

    /// Removes a subject's name from what was told to other processes, which learn instead that
    /// anything may have changed.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn redact_changes(&self, subject: &str) -> Result<()>;

    /// Notes that a cached answer was read from a copy of it, so that it is evicted later.
    ///
    /// [`ReadStore::get`] does this itself. Such notes are kept in memory, a limited number of them, until an eviction
    /// or [`Maintenance::flush_reads`].
    fn note_read(&self, namespace: &Namespace, key: &str);

    /// Writes down which cached answers were read, for evictions by other processes.
    ///
    /// It writes nothing for a namespace from which nothing was evicted yet, and nothing twice
    /// until an eviction comes by.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`: the notes are lost.
    async fn flush_reads(&self) -> Result<()>;

    /// Evicts entries of kind `cache`, the cheapest unread ones first, until their total is within
    /// the limit.
    ///
    /// Deletes at most `limit`, and returns how many. The largest namespace drops rows first, so
    /// that none loses its share to another.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn trim(&self, limit: usize) -> Result<u64>;

    /// Reseals rows of other keys of the ring with the current key; visits about `limit` rows after
    /// a mark.
    ///
    /// Versions and times stay. Each step is one transaction, so an interruption loses nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`; `Invalid` for a mark that no store made, or for a store without
    /// keys.
    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed>;

    /// Makes the store prove the current key from now on: the last step of a rotation.
    ///
    /// A ring without that key is then refused.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`; `Invalid` for a store without keys.
    async fn adopt_key(&self) -> Result<()>;
}

/// A store that can be written.
#[async_trait]
pub trait Store: Maintenance {
    /// Writes one entry: a new one at version 1, or a replacement.
    ///
    /// A replacement keeps `created_at` and adds one to `version`. When this returns, the entry
    /// survives the end of this process.
    ///
    /// # Errors
    /// `VersionMismatch`, `TooLarge`, `QuotaExceeded`: nothing was written. `Unavailable`,
    /// `Closed`.
    async fn put(&self, put: Put) -> Result<EntryMeta> {
        match self.write(vec![Op::Put(put)]).await?.pop() {
            Some(Written::Put(meta)) => Ok(*meta),
            _ => Err(StoreError::Corrupt(
                "a write answered with something else".to_owned(),
            )),
        }
    }

    /// Runs all operations, in order, in one transaction: all of them or none.
    ///
    /// One exception: a delete over all namespaces may be done in parts. If it fails, some rows may
    /// be gone.
    ///
    /// # Errors
    /// As [`Store::put`], for the first operation that fails.
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>>;

    /// Deletes, and returns how many rows.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn delete(&self, delete: Delete) -> Result<u64> {
        match self.write(vec![Op::Delete(delete)]).await?.pop() {
            Some(Written::Deleted(count)) => Ok(count),
            _ => Err(StoreError::Corrupt(
                "a delete answered with something else".to_owned(),
            )),
        }
    }

    /// Takes a lock across all processes on this store; `None` if it is taken.
    ///
    /// It is free again when it is released, after `hold`, or (where the store can tell) when its
    /// process is gone.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>>;

    /// Flushes all writes to disk and releases all resources; later calls answer `Closed`.
    ///
    /// # Errors
    /// `Unavailable` if something could not be written.
    async fn close(&self) -> Result<()>;
}

/// The kind of a call, for [`StoreWrapper::target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// [`ReadStore::get`].
    Get,
    /// [`ReadStore::scan`].
    Scan,
    /// Every other read.
    Read,
    /// [`Store::write`].
    Write,
    /// [`Store::try_lock`].
    Lock,
    /// Every call of [`Maintenance`].
    Maintain,
}

/// A store around another store. It implements [`Store`], and overrides only what differs.
#[async_trait]
pub trait StoreWrapper: Send + Sync + 'static {
    /// Returns the store inside.
    ///
    /// # Errors
    /// If there is none yet, or no longer: every call fails with this error.
    fn inner(&self) -> Result<&dyn Store>;

    /// Returns the store for one call. Override it to count, delay or refuse calls.
    ///
    /// # Errors
    /// The call fails with this error.
    async fn target(&self, _access: Access) -> Result<&dyn Store> {
        self.inner()
    }

    /// Carries out [`Store::write`].
    ///
    /// # Errors
    /// As [`Store::write`].
    async fn pass_write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.target(Access::Write).await?.write(batch).await
    }

    /// Carries out [`Store::close`].
    ///
    /// # Errors
    /// As [`Store::close`].
    async fn pass_close(&self) -> Result<()> {
        self.inner()?.close().await
    }

    /// Carries out [`ReadStore::changes`].
    fn pass_changes(&self) -> Option<Changes> {
        self.inner().ok()?.changes()
    }

    /// Carries out [`ReadStore::not_open`].
    fn pass_not_open(&self) -> Option<StoreError> {
        self.inner().ok()?.not_open()
    }
}

#[async_trait]
impl<W: StoreWrapper> ReadStore for W {
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>> {
        self.target(Access::Get)
            .await?
            .get(namespace, kind, key)
            .await
    }

    async fn list(
        &self,
        namespace: &Namespace,
        kind: Kind,
        prefix: &str,
        page: Page,
    ) -> Result<ListPage> {
        self.target(Access::Read)
            .await?
            .list(namespace, kind, prefix, page)
            .await
    }

    async fn scan(
        &self,
        namespace: &Namespace,
        kind: Kind,
        prefix: &str,
        order: Order,
        limit: usize,
    ) -> Result<Scan> {
        self.target(Access::Scan)
            .await?
            .scan(namespace, kind, prefix, order, limit)
            .await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceStats>> {
        self.target(Access::Read).await?.namespaces().await
    }

    async fn namespaces_of(&self, tenant: &str, subject: &str) -> Result<Vec<NamespaceStats>> {
        self.target(Access::Read)
            .await?
            .namespaces_of(tenant, subject)
            .await
    }

    async fn stats(&self) -> Result<Stats> {
        self.target(Access::Read).await?.stats().await
    }

    async fn generation(&self) -> Result<u64> {
        self.target(Access::Read).await?.generation().await
    }

    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk> {
        self.target(Access::Read).await?.walk(after, limit).await
    }

    fn changes(&self) -> Option<Changes> {
        self.pass_changes()
    }

    fn position(&self) -> Option<DeletePosition> {
        self.inner().ok()?.position()
    }

    async fn catch_up(&self, position: &DeletePosition) -> Result<CaughtUp> {
        self.target(Access::Read).await?.catch_up(position).await
    }

    fn not_open(&self) -> Option<StoreError> {
        self.pass_not_open()
    }
}

#[async_trait]
impl<W: StoreWrapper> Maintenance for W {
    async fn sweep_expired(&self, limit: usize) -> Result<u64> {
        self.target(Access::Maintain)
            .await?
            .sweep_expired(limit)
            .await
    }

    async fn redact_changes(&self, subject: &str) -> Result<()> {
        self.target(Access::Maintain)
            .await?
            .redact_changes(subject)
            .await
    }

    async fn trim(&self, limit: usize) -> Result<u64> {
        self.target(Access::Maintain).await?.trim(limit).await
    }

    fn note_read(&self, namespace: &Namespace, key: &str) {
        if let Ok(inner) = self.inner() {
            inner.note_read(namespace, key);
        }
    }

    async fn flush_reads(&self) -> Result<()> {
        self.target(Access::Maintain).await?.flush_reads().await
    }

    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed> {
        self.target(Access::Maintain)
            .await?
            .reseal(after, limit)
            .await
    }

    async fn adopt_key(&self) -> Result<()> {
        self.target(Access::Maintain).await?.adopt_key().await
    }
}

#[async_trait]
impl<W: StoreWrapper> Store for W {
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.pass_write(batch).await
    }

    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>> {
        self.target(Access::Lock).await?.try_lock(name, hold).await
    }

    async fn close(&self) -> Result<()> {
        self.pass_close().await
    }
}
