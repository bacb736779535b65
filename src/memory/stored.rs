//! The store that callers hold: any driver under any seal.
//!
//! It checks limits, reads the clock, makes fingerprints and proves the key at the start; rows are the driver's business.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Clock, Timestamp};

use crate::config::{Config, Limits};
use crate::driver::{Batch, Canary, Draft, DraftOp, Driver, Position, Quota, Range, end_of};
use crate::entry::{Entry, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::keyring::KeyRing;
use crate::sealed::{NoSeal, RowSeal, Seal};
use crate::store::{ListPage, NamespaceStats, Op, Order, Page, ReadStore, Scan, Stats, Store, Written};

/// A driver under a seal.
pub struct Stored<D> {
    driver: D,
    seal: Arc<dyn Seal>,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

/// The most entries of a page.
const MAX_PAGE: usize = 1000;

/// Values up to so many bytes are hashed and sealed on the caller's thread, in about 0.1 ms; more go to a blocking thread.
const INLINE_BYTES: usize = 64 << 10;

/// What the canary says once it is opened.
const CANARY_TEXT: &[u8] = b"helmdeck memory canary";

impl<D: Driver> Stored<D> {
    /// Makes a store that keeps values as they are.
    #[must_use]
    pub fn plain(driver: D, config: &Config, clock: Arc<dyn Clock>) -> Self {
        Self { driver, seal: Arc::new(NoSeal), limits: config.limits.clone(), clock }
    }

    /// Makes a store that seals every value, after proving that a key of the ring wrote what is there. A new store gets its
    /// canary row now.
    ///
    /// # Errors
    /// `WrongKey` if no key of the ring wrote the store; `Corrupt` if its canary is damaged; `Unavailable`.
    pub async fn sealed(driver: D, ring: KeyRing, config: &Config, clock: Arc<dyn Clock>) -> Result<Self> {
        prove_key(&driver, &ring).await?;
        let seal = RowSeal::new(ring, config.fingerprint);
        Ok(Self { driver, seal, limits: config.limits.clone(), clock })
    }

    fn batch(&self, ops: Vec<DraftOp>, now: Timestamp) -> Batch {
        Batch { ops, now, seal: Arc::clone(&self.seal), quota: Quota::of(&self.limits) }
    }

    fn range(&self, namespace: &Namespace, kind: Kind, prefix: &str) -> Range {
        Range { namespace: namespace.clone(), kind, prefix: prefix.to_owned(), now: self.clock.now() }
    }
}

/// Does what does not depend on the stored row: the fingerprint, the end, and the seal of what will mostly be a new entry.
/// That keeps it off the driver's one writing thread.
fn draft(op: Op, now: Timestamp, seal: &dyn Seal) -> Result<DraftOp> {
    let put = match op {
        Op::Delete(delete) => return Ok(DraftOp::Delete(delete)),
        Op::Put(put) => put,
    };
    let fingerprint = seal.fingerprint(&put.namespace, &put.value);
    let expires_at = end_of(now, put.ttl);
    let may_be_new = put.expect_version.is_none_or(|version| version == 0);
    let mut draft = Draft { put, fingerprint, expires_at, fresh: None };
    if may_be_new {
        let meta = draft.settle(None, now, seal.overhead())?;
        draft.fresh = Some(seal.seal(&meta, &draft.put.value)?);
    }
    Ok(DraftOp::Put(Box::new(draft)))
}

/// One clear error at the start instead of a thousand rows that do not open.
async fn prove_key<D: Driver>(driver: &D, ring: &KeyRing) -> Result<()> {
    let place = Namespace::new("", "", None);
    let fresh =
        Canary { key_id: ring.current_id().to_owned(), sealed: ring.seal_blob(&place, "canary", b"", CANARY_TEXT)? };
    let stored = driver.canary(fresh).await?;
    if !ring.ids().any(|id| id == stored.key_id) {
        let given = ring.ids().collect::<Vec<_>>().join(", ");
        return Err(StoreError::WrongKey { store: stored.key_id, given });
    }
    match ring.open_blob(&place, "canary", b"", &stored.sealed) {
        Ok(text) if text == CANARY_TEXT => Ok(()),
        _ => Err(StoreError::Corrupt(format!("the row that proves key {} does not open", stored.key_id))),
    }
}

#[async_trait]
impl<D: Driver> ReadStore for Stored<D> {
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>> {
        self.driver.get(namespace, kind, key, self.clock.now(), &self.seal).await
    }

    async fn list(&self, namespace: &Namespace, kind: Kind, prefix: &str, page: Page) -> Result<ListPage> {
        let after = page.after.as_ref().map(Position::parse).transpose()?;
        self.driver.list(self.range(namespace, kind, prefix), after, page.limit.clamp(1, MAX_PAGE)).await
    }

    async fn scan(&self, namespace: &Namespace, kind: Kind, prefix: &str, order: Order, limit: usize) -> Result<Scan> {
        self.driver.scan(self.range(namespace, kind, prefix), order, limit, &self.seal).await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceStats>> {
        let mut all = self.driver.namespaces(self.clock.now()).await?;
        all.sort_by(|a, b| b.rows.cmp(&a.rows).then_with(|| (&a.namespace, a.kind).cmp(&(&b.namespace, b.kind))));
        Ok(all)
    }

    async fn stats(&self) -> Result<Stats> {
        self.driver.stats(self.clock.now()).await
    }

    async fn generation(&self) -> Result<u64> {
        self.driver.generation().await
    }
}

#[async_trait]
impl<D: Driver> Store for Stored<D> {
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.limits.check(&batch)?;
        let now = self.clock.now();
        let bytes: usize = batch.iter().map(|op| if let Op::Put(put) = op { put.value.len() } else { 0 }).sum();
        let seal = Arc::clone(&self.seal);
        let drafts = move || batch.into_iter().map(|op| draft(op, now, &*seal)).collect::<Result<Vec<_>>>();
        let ops = if bytes > INLINE_BYTES {
            tokio::task::spawn_blocking(drafts).await.map_err(StoreError::unavailable)??
        } else {
            drafts()?
        };
        self.driver.write(self.batch(ops, now)).await
    }

    async fn sweep_expired(&self, limit: usize) -> Result<u64> {
        let written = self.driver.write(self.batch(vec![DraftOp::Sweep(limit)], self.clock.now())).await?;
        Ok(written.iter().map(|done| if let Written::Deleted(count) = done { *count } else { 0 }).sum())
    }

    async fn close(&self) -> Result<()> {
        self.driver.close().await
    }
}

impl<D: Driver> std::fmt::Debug for Stored<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").field("driver", &self.driver.name()).finish_non_exhaustive()
    }
}
