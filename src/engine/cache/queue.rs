//! Work queue of the writer: answers, purges and rows to take back, in one order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use helmdeck_core::Timestamp;
use helmdeck_memory::{Lock, Put};
use tokio::sync::{mpsc, oneshot};

use super::answer::Location;
use super::invalidation::Row;
use super::purge::Selector;

/// Pending write of an answer to the store.
pub(crate) struct Write {
    pub(crate) put: Put,
    pub(crate) location: Arc<Location>,
    /// Epoch in which it completed.
    pub(crate) epoch: u64,
    /// Lock that keeps other processes from running for the same key.
    ///
    /// They read the answer once it is released.
    pub(crate) lock: Option<Lock>,
}

/// Purge that the writer must carry out in the store.
pub(crate) struct Purge {
    pub(crate) id: u64,
    /// When it was decided on.
    pub(crate) at: Timestamp,
    pub(crate) selector: Selector,
    pub(crate) done: Option<oneshot::Sender<u64>>,
}

pub(super) enum Message {
    Write(Box<Write>),
    Purge(Purge),
    TakeBack(Vec<Row>),
    Flush(oneshot::Sender<()>),
}

/// Bounded queue of the writer.
pub(crate) struct Queue {
    messages: mpsc::Sender<Message>,
    /// Purges are in order with the writes, but do not count towards their limit.
    waiting_bytes: AtomicU64,
    max_bytes: u64,
}

/// Receiver of the queue, for the writer.
pub(crate) struct Inbox(pub(super) mpsc::Receiver<Message>);

impl Queue {
    pub(crate) fn new(length: usize, max_bytes: u64) -> (Self, Inbox) {
        let (messages, inbox) = mpsc::channel(length.max(1));
        (Self { messages, waiting_bytes: AtomicU64::new(0), max_bytes }, Inbox(inbox))
    }

    /// Queues a write; `false` if the queue is full.
    pub(crate) fn write(&self, write: Write) -> bool {
        let bytes = write.put.value.len() as u64;
        if self.waiting_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes > self.max_bytes
            || self.messages.try_send(Message::Write(Box::new(write))).is_err()
        {
            self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// Records that writes of `bytes` left the queue.
    pub(super) fn left(&self, bytes: u64) {
        self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Queues a purge; waits for room if the queue is full.
    pub(crate) async fn purge(&self, purge: Purge) {
        // The writer task runs as long as the engine; without it nothing is served either.
        let _ = self.messages.send(Message::Purge(purge)).await;
    }

    /// Queues rows to be taken back; waits for room if the queue is full.
    pub(crate) async fn take_back(&self, rows: Vec<Row>) {
        if !rows.is_empty() {
            let _ = self.messages.send(Message::TakeBack(rows)).await;
        }
    }

    /// Waits until everything queued so far is written or lost.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.messages.send(Message::Flush(done)).await.is_ok() {
            let _ = wait.await;
        }
    }
}
