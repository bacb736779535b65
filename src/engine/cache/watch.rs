//! Watches for deletes by other processes on the same store.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::{Change, Changes};
use tokio::sync::broadcast::error::RecvError;

use super::hub::Hub;
use super::invalidation::{Covers, LATE, LOST, before};

/// Watches for deletes by other processes, until the hub is dropped.
///
/// Subscribes to `changes` if there is such a source, and while it lasts. Otherwise polls the
/// generation of the store.
pub(super) async fn watch(hub: Arc<Hub>, changes: Option<Changes>) {
    if let Some(changes) = changes {
        hub.invalidations.set_notified(true);
        listen(&hub, changes).await;
        hub.invalidations.set_notified(false);
        tracing::warn!("the notifications of other processes ended; the store is polled instead");
    }
    poll(&hub).await;
}

/// Ends when the source does.
async fn listen(hub: &Hub, mut changes: Changes) {
    loop {
        match changes.recv().await {
            Ok(Change::Deleted(delete)) => {
                if let Some(covers) = Covers::of(delete) {
                    hub.invalidate_deleted(covers, before(hub.clock.now(), LATE));
                }
            }
            Ok(Change::Mark(mark)) => hub.heard(mark),
            Ok(Change::Anything) | Err(RecvError::Lagged(_)) => {
                hub.invalidate_deleted(Covers::Everything, before(hub.clock.now(), LOST));
            }
            Err(RecvError::Closed) => {
                return hub.invalidate_deleted(Covers::Everything, before(hub.clock.now(), LOST));
            }
        }
    }
}

/// Polls the generation of the store.
///
/// It does not say what was deleted, so every answer of this process may be outdated.
async fn poll(hub: &Hub) {
    let mut seen = None;
    // Last time at which no other process had deleted anything for certain.
    let mut certain = hub.clock.now();
    loop {
        let (asked, written) = (hub.clock.now(), hub.invalidations.written());
        let reading = async {
            match seen {
                Some(_) => hub.store.generation().await,
                None => hub.own_deletes.begin(hub.store.generation()).await,
            }
        };
        if let Ok(Ok(generation)) = tokio::time::timeout(Duration::from_secs(1), reading).await {
            if seen
                .replace(generation)
                .is_some_and(|before| hub.own_deletes.others_deleted(before, generation))
            {
                hub.invalidate_deleted(Covers::Everything, certain);
            }
            certain = asked;
            hub.invalidations.drop_settled(written);
        }
        tokio::time::sleep(hub.config.watch_interval).await;
    }
}
