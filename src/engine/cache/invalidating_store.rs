//! Store decorator that invalidates the cache on deletes by other parts of this process.
//!
//! A store notifies only other processes of a delete. Without this decorator the cache would go on
//! serving an entry that another part of this process deleted. Or it would mistake the delete of a
//! note for the purge of another process, and drop everything.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_memory::{Op, Result, Store, StoreError, StoreWrapper, Written};

use super::hub::Hub;
use super::invalidation::{Covers, LATE, before};

/// The store of a hub.
pub(crate) struct InvalidatingStore(pub(crate) Arc<Hub>);

#[async_trait]
impl StoreWrapper for InvalidatingStore {
    fn inner(&self) -> Result<&dyn Store> {
        Ok(&*self.0.store)
    }

    async fn pass_write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        if !batch.iter().any(|op| matches!(op, Op::Delete(_))) {
            return self.0.store.write(batch).await;
        }
        let hub = Arc::clone(&self.0);
        // In its own task, so that the cache is invalidated although the caller stopped waiting.
        tokio::spawn(async move { delete(&hub, batch).await })
            .await
            .map_err(StoreError::unavailable)?
    }
}

async fn delete(hub: &Hub, batch: Vec<Op>) -> Result<Vec<Written>> {
    let deletes = batch.iter().filter_map(|op| {
        if let Op::Delete(delete) = op {
            Some(delete.clone())
        } else {
            None
        }
    });
    let covers: Vec<Covers> = deletes.filter_map(Covers::of).collect();
    let written = hub.own_deletes.run(hub.store.write(batch)).await;
    // After a failure too: the delete may have happened before its reply was lost.
    for covers in covers {
        hub.invalidate_deleted(covers, before(hub.clock.now(), LATE));
    }
    written
}
