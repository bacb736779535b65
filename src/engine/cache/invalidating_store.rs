//! Store decorator that invalidates the cache: what a part of this process deletes is dropped from the cache too.
//!
//! A store notifies only other processes of a delete. Without this decorator the cache would go on serving what was
//! deleted next to it, or mistake the delete of a note for the purge of another process and drop everything.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_memory::{
    Changes, Entry, Kind, ListPage, Lock, Mark, Namespace, NamespaceStats, Op, Order, Page, ReadStore, Resealed,
    Result, Scan, Stats, Store, StoreError, Walk, Written,
};

use super::hub::Hub;
use super::invalidation::{Covers, LATE, before};

/// The store of a hub.
pub(crate) struct InvalidatingStore(pub(crate) Arc<Hub>);

#[async_trait]
impl ReadStore for InvalidatingStore {
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>> {
        self.0.store.get(namespace, kind, key).await
    }

    async fn list(&self, namespace: &Namespace, kind: Kind, prefix: &str, page: Page) -> Result<ListPage> {
        self.0.store.list(namespace, kind, prefix, page).await
    }

    async fn scan(&self, namespace: &Namespace, kind: Kind, prefix: &str, order: Order, limit: usize) -> Result<Scan> {
        self.0.store.scan(namespace, kind, prefix, order, limit).await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceStats>> {
        self.0.store.namespaces().await
    }

    async fn stats(&self) -> Result<Stats> {
        self.0.store.stats().await
    }

    async fn generation(&self) -> Result<u64> {
        self.0.store.generation().await
    }

    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk> {
        self.0.store.walk(after, limit).await
    }

    fn changes(&self) -> Option<Changes> {
        self.0.store.changes()
    }

    fn not_open(&self) -> Option<StoreError> {
        self.0.store.not_open()
    }
}

#[async_trait]
impl Store for InvalidatingStore {
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        if !batch.iter().any(|op| matches!(op, Op::Delete(_))) {
            return self.0.store.write(batch).await;
        }
        let hub = Arc::clone(&self.0);
        // In its own task, so that the cache is invalidated although the caller stopped waiting.
        tokio::spawn(async move { delete(&hub, batch).await }).await.map_err(StoreError::unavailable)?
    }

    async fn sweep_expired(&self, limit: usize) -> Result<u64> {
        self.0.store.sweep_expired(limit).await
    }

    async fn trim(&self, limit: usize) -> Result<u64> {
        self.0.store.trim(limit).await
    }

    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed> {
        self.0.store.reseal(after, limit).await
    }

    async fn adopt_key(&self) -> Result<()> {
        self.0.store.adopt_key().await
    }

    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>> {
        self.0.store.try_lock(name, hold).await
    }

    async fn close(&self) -> Result<()> {
        self.0.store.close().await
    }
}

async fn delete(hub: &Hub, batch: Vec<Op>) -> Result<Vec<Written>> {
    let deletes = batch.iter().filter_map(|op| if let Op::Delete(delete) = op { Some(delete.clone()) } else { None });
    let covers: Vec<Covers> = deletes.filter_map(Covers::of).collect();
    let written = hub.own_deletes.run(hub.store.write(batch)).await;
    // After a failure too: the delete may have happened before its answer was lost.
    for covers in covers {
        hub.invalidate_deleted(covers, before(hub.clock.now(), LATE)).await;
    }
    written
}
