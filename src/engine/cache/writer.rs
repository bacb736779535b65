//! Writes answers to the store behind the response, and carries out purges in order with them.
//!
//! One task and one bounded queue: what does not fit is dropped and counted. A purge is never dropped; if the store fails it
//! is tried again until it is done, and until then the rows it covers are not served (`purge::PendingPurges`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_memory::{Op, Put, StoreError};
use tokio::sync::{mpsc, oneshot};

use super::hub::Hub;
use super::purge::Selector;

/// The most rows of one write.
const BATCH: usize = 64;
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A purge on its way to the store.
pub(crate) struct Purge {
    pub(crate) id: u64,
    pub(crate) selector: Selector,
    pub(crate) done: Option<oneshot::Sender<u64>>,
}

enum Message {
    Put(Box<Put>),
    Purge(Purge),
    Flush(oneshot::Sender<()>),
}

/// The way to the writer.
pub(crate) struct Queue {
    puts: mpsc::Sender<Message>,
    /// Purges share the order of the puts but not their bound.
    waiting_bytes: AtomicU64,
    max_bytes: u64,
}

/// The writer's end of the queue.
pub(crate) struct Inbox(mpsc::Receiver<Message>);

impl Queue {
    pub(crate) fn new(length: usize, max_bytes: u64) -> (Self, Inbox) {
        let (puts, inbox) = mpsc::channel(length.max(1));
        (Self { puts, waiting_bytes: AtomicU64::new(0), max_bytes }, Inbox(inbox))
    }

    /// Queues a write; `false` if the queue is full.
    pub(crate) fn put(&self, put: Put) -> bool {
        let bytes = put.value.len() as u64;
        if self.waiting_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes > self.max_bytes
            || self.puts.try_send(Message::Put(Box::new(put))).is_err()
        {
            self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// Queues a purge, waiting for room if need be.
    pub(crate) async fn purge(&self, purge: Purge) {
        // The writer lives as long as the engine; without it nothing is served either.
        let _ = self.puts.send(Message::Purge(purge)).await;
    }

    /// Waits until everything queued so far is written or lost.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.puts.send(Message::Flush(done)).await.is_ok() {
            let _ = wait.await;
        }
    }
}

/// Runs until the queue is closed.
pub(crate) async fn run(hub: Arc<Hub>, mut inbox: Inbox) {
    let mut again: VecDeque<Purge> = VecDeque::new();
    loop {
        let message = if again.is_empty() {
            inbox.0.recv().await
        } else {
            match tokio::time::timeout(RETRY_AFTER, inbox.0.recv()).await {
                Ok(message) => message,
                Err(_) => {
                    retry(&hub, &mut again).await;
                    continue;
                }
            }
        };
        let Some(message) = message else { break };
        let mut next = Some(message);
        while let Some(message) = next.take() {
            match message {
                Message::Put(first) => {
                    let mut puts = vec![*first];
                    while puts.len() < BATCH {
                        match inbox.0.try_recv() {
                            Ok(Message::Put(put)) => puts.push(*put),
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    write(&hub, puts).await;
                }
                Message::Purge(purge) => again.extend(carry_out(&hub, purge).await),
                Message::Flush(done) => {
                    retry(&hub, &mut again).await;
                    let _ = done.send(());
                }
            }
        }
    }
}

async fn retry(hub: &Hub, again: &mut VecDeque<Purge>) {
    for purge in std::mem::take(again) {
        again.extend(carry_out(hub, purge).await);
    }
}

async fn write(hub: &Hub, puts: Vec<Put>) {
    let bytes: u64 = puts.iter().map(|put| put.value.len() as u64).sum();
    let count = puts.len() as u64;
    let result = if hub.allows(&hub.writing) {
        Some(attempt(hub, puts.iter().cloned().map(Op::Put).collect()).await)
    } else {
        None
    };
    match result {
        Some(Ok(())) => {}
        // One row that the store will not take must not cost its neighbours.
        Some(Err(Some(error))) if !error.is_temporary() && count > 1 => {
            for put in puts {
                if attempt(hub, vec![Op::Put(put)]).await.is_err() {
                    hub.metrics.writes_dropped.inc();
                }
            }
        }
        Some(Err(_)) | None => {
            hub.metrics.writes_dropped.inc_by(count);
        }
    }
    hub.queue.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
}

/// Writes one batch within the budget. `Err(None)` = out of time.
async fn attempt(hub: &Hub, batch: Vec<Op>) -> Result<(), Option<StoreError>> {
    let started = hub.clock.monotonic();
    let result = tokio::time::timeout(hub.config.write_budget, hub.store.write(batch)).await;
    hub.metrics.store_took("write", hub.clock.monotonic().saturating_sub(started));
    match result {
        Ok(Ok(_)) => {
            hub.store_works(&hub.writing);
            Ok(())
        }
        Ok(Err(error)) => {
            if error.is_temporary() {
                hub.store_fails(&hub.writing, "write", &error.to_string());
            } else {
                hub.metrics.store_error("write");
                tracing::debug!(%error, "an answer was not stored");
            }
            Err(Some(error))
        }
        Err(_) => {
            hub.store_fails(&hub.writing, "write", "it took too long");
            Err(None)
        }
    }
}

/// Carries out a purge, or gives it back to be tried again.
async fn carry_out(hub: &Hub, mut purge: Purge) -> Option<Purge> {
    hub.own_deletes.fetch_add(1, Ordering::AcqRel);
    match tokio::time::timeout(hub.config.write_budget, hub.store.delete(purge.selector.delete())).await {
        Ok(Ok(rows)) => {
            hub.store_works(&hub.writing);
            hub.pending.done(purge.id);
            if let Some(done) = purge.done.take() {
                let _ = done.send(rows);
            }
            None
        }
        // A store that was closed on purpose has nothing left to serve.
        Ok(Err(StoreError::Closed)) => None,
        failed => {
            hub.own_deletes.fetch_sub(1, Ordering::AcqRel);
            let why = match failed {
                Ok(Err(error)) => error.to_string(),
                _ => "it took too long".to_owned(),
            };
            hub.store_fails(&hub.writing, "purge", &why);
            purge.done = None;
            Some(purge)
        }
    }
}
