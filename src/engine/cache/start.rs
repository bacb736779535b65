//! Starts the background tasks of a hub.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::hub::{HEARTBEAT_EVERY, Hub, HubDependencies};
use super::watch::watch;
use super::writer;

/// Makes a hub and starts its tasks, which end when `stop` is cancelled.
pub(crate) fn start(mut parts: HubDependencies, stop: &CancellationToken) -> Arc<Hub> {
    // Subscribe before the first read, so that no notification is missed.
    let changes = parts.changes.take().or_else(|| parts.store.changes());
    let hub = Hub::new(parts);
    tokio::spawn(write(Arc::clone(&hub), stop.clone()));
    tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(watch(Arc::clone(&hub), changes)),
    );
    tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(keep_counters(Arc::clone(&hub))),
    );
    tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(heartbeat(Arc::clone(&hub))),
    );
    hub
}

async fn write(hub: Arc<Hub>, stop: CancellationToken) {
    stop.run_until_cancelled(hub.resume_journaled()).await;
    stop.run_until_cancelled(writer::run(&hub)).await;
    hub.queue.close();
}

async fn heartbeat(hub: Arc<Hub>) {
    loop {
        hub.heartbeat();
        tokio::time::sleep(HEARTBEAT_EVERY).await;
    }
}

async fn keep_counters(hub: Arc<Hub>) {
    loop {
        tokio::time::sleep(hub.config.counters_interval).await;
        hub.write_counters().await;
        hub.drop_expired();
        hub.flush_reads().await;
        hub.resume_journaled().await;
        hub.warn_of_dropped();
    }
}
