//! Writes answers to the store after the response, and carries out purges in order with them.
//!
//! One task and one bounded queue: of what does not fit, the cheapest is dropped and counted. A
//! purge is never dropped; if the store fails it is tried again until it is done, and until then
//! the rows it covers are not served (`purge::PendingPurges`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use helmdeck_memory::{Delete, Kind, Lock, Op, Put, StoreError, Written};

use super::hub::{Hub, SLOW, TOO_LONG};
use super::invalidation::{Covers, Row};
use super::queue::{Message, Purge, Write};

/// Limit of rows per write.
const BATCH: usize = 64;
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Time limit for the release of locks. After that they expire.
const RELEASE: Duration = Duration::from_secs(1);

/// Work that failed and must be retried.
#[derive(Default)]
struct Unfinished {
    purges: VecDeque<Purge>,
    rows: VecDeque<Row>,
}

impl Unfinished {
    fn is_empty(&self) -> bool {
        self.purges.is_empty() && self.rows.is_empty()
    }

    async fn retry(&mut self, hub: &Hub) {
        for purge in std::mem::take(&mut self.purges) {
            self.purges.extend(carry_out(hub, purge).await);
        }
        for row in std::mem::take(&mut self.rows) {
            self.rows.extend(take_back(hub, row).await);
        }
    }
}

/// Runs until it is cancelled.
pub(crate) async fn run(hub: &Hub) {
    let mut unfinished = Unfinished::default();
    loop {
        let message = if unfinished.is_empty() {
            hub.queue.next().await
        } else {
            match tokio::time::timeout(RETRY_AFTER, hub.queue.next()).await {
                Ok(message) => message,
                Err(_) => {
                    unfinished.retry(hub).await;
                    continue;
                }
            }
        };
        match message {
            Message::Write(first) => {
                let more = std::iter::from_fn(|| hub.queue.next_write());
                let writes = std::iter::once(*first).chain(more).take(BATCH).collect();
                write(hub, writes, &mut unfinished).await;
            }
            Message::Purge(purge) => unfinished.purges.extend(carry_out(hub, purge).await),
            Message::TakeBack(rows) => {
                for row in rows {
                    unfinished.rows.extend(take_back(hub, row).await);
                }
            }
            Message::Flush(done) => {
                unfinished.retry(hub).await;
                let _ = done.send(());
            }
        }
    }
}

async fn write(hub: &Hub, mut writes: Vec<Write>, unfinished: &mut Unfinished) {
    let bytes: u64 = writes
        .iter()
        .map(|write| write.put.value.len() as u64)
        .sum();
    writes.retain(|write| {
        let outdated = hub.invalidations.outdated(&write.location, write.epoch);
        if outdated {
            hub.metrics.refused("purged");
        }
        !outdated
    });
    let count = writes.len() as u64;
    let result = match count {
        0 => Some(Ok(Vec::new())),
        _ if hub.allows(&hub.writing) => Some(
            attempt(
                hub,
                writes
                    .iter()
                    .map(|write| Op::Put(write.put.clone()))
                    .collect(),
            )
            .await,
        ),
        _ => None,
    };
    let mut locks = Vec::new();
    match result {
        Some(Ok(written)) => {
            for (write, written) in writes.into_iter().zip(written) {
                unfinished.rows.extend(confirm(hub, &write, &written).await);
                locks.extend(write.lock);
            }
        }
        // One row that the store refuses must not cost the other rows of the batch.
        Some(Err(Some(error))) if !error.is_temporary() && count > 1 => {
            for write in writes {
                match attempt(hub, vec![Op::Put(write.put.clone())])
                    .await
                    .as_deref()
                {
                    Ok([written]) => unfinished.rows.extend(confirm(hub, &write, written).await),
                    _ => {
                        hub.metrics.totals.writes_dropped.inc();
                    }
                }
                locks.extend(write.lock);
            }
        }
        Some(Err(_)) | None => {
            hub.metrics.totals.writes_dropped.inc_by(count);
        }
    }
    if !locks.is_empty() {
        // A lock that could not be released only makes waiters wait longer.
        let _ = tokio::time::timeout(RELEASE, join_all(locks.into_iter().map(Lock::release))).await;
    }
    hub.queue.left(bytes);
}

/// Records a written row, or takes it back if it was invalidated during the write.
///
/// Returns the row if that failed.
async fn confirm(hub: &Hub, write: &Write, written: &Written) -> Option<Row> {
    let Written::Put(meta) = written else {
        return None;
    };
    let row = Row {
        location: Arc::clone(&write.location),
        epoch: write.epoch,
        version: meta.version,
        updated_at: meta.updated_at,
        written_at: hub.clock.now(),
    };
    take_back(hub, hub.invalidations.record_write(row)?).await
}

/// Makes a row unreadable if it is still the one that was written.
///
/// A row made after the purge at the same version stays. Returns the row if that failed.
///
/// The row is replaced by an empty one rather than deleted, because a delete would make all other
/// processes take back rows too. Processes that are notified of each delete, and not merely that
/// one happened, are notified of this one.
async fn take_back(hub: &Hub, row: Row) -> Option<Row> {
    let key = row
        .location
        .key
        .stored(&row.location.pack, row.location.version);
    let namespace = row.location.namespace.clone();
    let nothing = Put::ending(
        namespace.clone(),
        Kind::Cache,
        key.clone(),
        row.version,
        row.updated_at,
    );
    let mut batch = vec![Op::Put(nothing)];
    if hub.invalidations.are_notified() {
        batch.push(Op::Delete(Delete::Key {
            namespace,
            kind: Kind::Cache,
            key,
        }));
    }
    match attempt(hub, batch).await {
        Ok(_)
        | Err(Some(
            StoreError::VersionMismatch { .. } | StoreError::NotNewer | StoreError::Closed,
        )) => None,
        Err(_) => Some(row),
    }
}

/// Writes one batch within the budget. `Err(None)` = out of time.
async fn attempt(hub: &Hub, batch: Vec<Op>) -> Result<Vec<Written>, Option<StoreError>> {
    let started = hub.clock.monotonic();
    let result = tokio::time::timeout(hub.config.write_budget, hub.store.write(batch)).await;
    hub.metrics
        .store_took("write", hub.clock.monotonic().saturating_sub(started));
    match result {
        Ok(Ok(written)) => {
            hub.store_works(&hub.writing);
            Ok(written)
        }
        Ok(Err(error)) => {
            if error.is_temporary() {
                hub.store_fails(&hub.writing, "write", error.trouble(), &error.to_string());
            } else {
                hub.metrics.store_error("write");
                tracing::debug!(%error, "an answer was not stored");
            }
            Err(Some(error))
        }
        Err(_) => {
            hub.store_fails(&hub.writing, "write", SLOW, TOO_LONG);
            Err(None)
        }
    }
}

/// Carries out a purge, or returns it for a retry.
async fn carry_out(hub: &Hub, mut purge: Purge) -> Option<Purge> {
    let delete = purge.selector.delete();
    match tokio::time::timeout(
        hub.config.write_budget,
        hub.own_deletes.run(hub.store.delete(delete.clone())),
    )
    .await
    {
        Ok(Ok(rows)) => {
            hub.store_works(&hub.writing);
            hub.invalidations
                .purged(Covers::Of(delete), purge.at, hub.clock.monotonic());
            hub.end_purge(purge.id).await;
            if let Some(done) = purge.done.take() {
                let _ = done.send(rows);
            }
            None
        }
        // A store that was closed on purpose serves no answer.
        Ok(Err(StoreError::Closed)) => None,
        failed => {
            let (trouble, why) = match failed {
                Ok(Err(error)) => (error.trouble(), error.to_string()),
                _ => (SLOW, TOO_LONG.to_owned()),
            };
            hub.store_fails(&hub.writing, "purge", trouble, &why);
            purge.done = None;
            Some(purge)
        }
    }
}
