//! Work queue of the writer: answers, purges and rows to take back, in one order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::{Lock, Put};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::answer::Location;
use super::invalidation::Row;
use super::purge::Selector;

/// Pending write of an answer to the store.
pub(crate) struct Write {
    pub(crate) put: Put,
    pub(crate) location: Arc<Location>,
    /// Duration of the handler: what the write is worth.
    pub(crate) cost: Duration,
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

/// Queue of the writer.
///
/// Writes are bounded. Purges are in order with them, and never dropped.
pub(crate) struct Queue {
    waiting: Mutex<QueueState>,
    arrived: Notify,
    max_writes: usize,
    max_bytes: u64,
}

#[derive(Default)]
struct QueueState {
    messages: BTreeMap<u64, Message>,
    next: u64,
    /// Cost and number of each write that waits.
    writes: BTreeSet<(Duration, u64)>,
    /// The bytes of writes that wait, and of those that the writer took and did not finish.
    bytes: u64,
    /// There is no writer any more.
    closed: bool,
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Whether it waits now. If not, the queue is full of writes that cost as much or more.
    pub(crate) waits: bool,
    /// Number of writes that were dropped: cheaper ones in its favour, or itself.
    pub(crate) dropped: u64,
}

impl Queue {
    pub(crate) fn new(max_writes: usize, max_bytes: u64) -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Notify::new(),
            max_writes: max_writes.max(1),
            max_bytes,
        }
    }

    /// Queues a write. If the queue is full, the cheapest writes are dropped, this one among them.
    pub(crate) fn write(&self, write: Write) -> Queued {
        let (bytes, mut dropped) = (write.put.value.len() as u64, Vec::new());
        let mut waiting = self.waiting.lock();
        let waits =
            !waiting.closed && self.make_room(&mut waiting, write.cost, bytes, &mut dropped);
        if waits {
            let number = waiting.next;
            waiting.writes.insert((write.cost, number));
            waiting.bytes += bytes;
            waiting.push(Message::Write(Box::new(write)));
        }
        drop(waiting);
        self.arrived.notify_one();
        // Their locks are released here, outside of the mutex.
        Queued {
            waits,
            dropped: dropped.len() as u64 + u64::from(!waits),
        }
    }

    /// Removes cheaper writes until one of this cost and size fits; `false`, without removing any,
    /// if it cannot.
    fn make_room(
        &self,
        waiting: &mut QueueState,
        cost: Duration,
        bytes: u64,
        dropped: &mut Vec<Message>,
    ) -> bool {
        let (mut free, mut count, mut doomed) = (
            self.max_bytes.saturating_sub(waiting.bytes),
            waiting.writes.len(),
            0,
        );
        let mut cheapest = waiting.writes.iter();
        while free < bytes || count >= self.max_writes {
            match cheapest.next() {
                Some((other, number)) if *other < cost => {
                    free += waiting.messages.get(number).map_or(0, Message::bytes);
                    (count, doomed) = (count - 1, doomed + 1);
                }
                _ => return false,
            }
        }
        for _ in 0..doomed {
            let cheapest = waiting.writes.pop_first();
            dropped.extend(cheapest.and_then(|(_, number)| waiting.messages.remove(&number)));
        }
        waiting.bytes -= dropped.iter().map(Message::bytes).sum::<u64>();
        true
    }

    /// Records that writes of `bytes` are finished.
    pub(super) fn left(&self, bytes: u64) {
        self.waiting.lock().bytes -= bytes;
    }

    /// Queues a purge.
    pub(crate) fn purge(&self, purge: Purge) {
        self.push(Message::Purge(purge));
    }

    /// Queues rows to be taken back.
    pub(crate) fn take_back(&self, rows: Vec<Row>) {
        if !rows.is_empty() {
            self.push(Message::TakeBack(rows));
        }
    }

    /// Waits until everything queued so far is written or lost.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        self.push(Message::Flush(done));
        let _ = wait.await;
    }

    /// Drops everything, now and from now on: the writer has ended.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.writes.clear();
        let lost = std::mem::take(&mut waiting.messages);
        drop(waiting);
        // Whoever waits for a purge or a flush learns it here.
        drop(lost);
    }

    fn push(&self, message: Message) {
        self.waiting.lock().push(message);
        self.arrived.notify_one();
    }

    /// Takes the next message, or waits for one. For the writer only.
    pub(super) async fn next(&self) -> Message {
        loop {
            if let Some(message) = self.take(|_| true) {
                return message;
            }
            self.arrived.notified().await;
        }
    }

    /// Takes the next message if it is a write.
    pub(super) fn next_write(&self) -> Option<Write> {
        match self.take(|message| matches!(message, Message::Write(_)))? {
            Message::Write(write) => Some(*write),
            _ => None,
        }
    }

    fn take(&self, wanted: impl Fn(&Message) -> bool) -> Option<Message> {
        let mut waiting = self.waiting.lock();
        let first = waiting
            .messages
            .first_entry()
            .filter(|first| wanted(first.get()))?;
        let (number, message) = first.remove_entry();
        if let Message::Write(write) = &message {
            waiting.writes.remove(&(write.cost, number));
        }
        Some(message)
    }
}

impl QueueState {
    fn push(&mut self, message: Message) {
        if !self.closed {
            self.messages.insert(self.next, message);
            self.next += 1;
        }
    }
}

impl Message {
    /// Returns the bytes that count towards the limit.
    fn bytes(&self) -> u64 {
        if let Self::Write(write) = self {
            write.put.value.len() as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use helmdeck_core::{PackName, Version};
    use helmdeck_memory::{Kind, Namespace};

    use super::*;
    use crate::cache::key::Key;

    fn write(cost_ms: u64, bytes: usize) -> Write {
        let namespace = Namespace::new("t", "a", None);
        let location = Location {
            key: Key([0; 32]),
            pack: PackName::new("t.echo").unwrap(),
            version: Version::new(1).unwrap(),
            namespace: namespace.clone(),
            tags: [].into(),
        };
        let put = Put::new(namespace, Kind::Cache, "k", Bytes::from(vec![0; bytes]));
        Write {
            put,
            location: Arc::new(location),
            cost: Duration::from_millis(cost_ms),
            epoch: 0,
            lock: None,
        }
    }

    fn queued(queue: &Queue, cost_ms: u64, bytes: usize) -> (bool, u64) {
        let queued = queue.write(write(cost_ms, bytes));
        (queued.waits, queued.dropped)
    }

    /// Takes all writes; returns the cost of each.
    fn costs(queue: &Queue) -> Vec<u128> {
        std::iter::from_fn(|| queue.next_write())
            .map(|write| write.cost.as_millis())
            .collect()
    }

    #[test]
    fn full_queue_drops_the_cheapest_write() {
        let queue = Queue::new(3, 1000);
        for cost in [20, 10, 30] {
            assert_eq!(queued(&queue, cost, 1), (true, 0));
        }
        assert_eq!(
            queued(&queue, 10, 1),
            (false, 1),
            "as cheap as the cheapest: the one that waits stays"
        );
        assert_eq!(queued(&queue, 15, 1), (true, 1));
        assert_eq!(queued(&queue, 40, 1), (true, 1));
        assert_eq!(
            costs(&queue),
            [20, 30, 40],
            "in the order in which they came"
        );
        queue.left(3);
        assert_eq!(queued(&queue, 1, 1), (true, 0));
    }

    #[test]
    fn bytes_of_unfinished_writes_count() {
        let queue = Queue::new(100, 10);
        assert_eq!(queued(&queue, 5, 4), (true, 0));
        let taken = queue.next_write().unwrap();
        for cost in [1, 2, 3] {
            assert_eq!(queued(&queue, cost, 2), (true, 0));
        }
        assert_eq!(
            queued(&queue, 3, 6),
            (false, 1),
            "two that are cheaper are too small, so neither goes"
        );
        assert_eq!(queued(&queue, 9, 11), (false, 1), "larger than the queue");
        assert_eq!(queued(&queue, 3, 4), (true, 2));
        assert_eq!(costs(&queue), [3, 3]);
        queue.left(taken.put.value.len() as u64 + 2 + 4);
        assert_eq!(queued(&queue, 1, 10), (true, 0));
    }

    #[tokio::test]
    async fn purges_are_never_dropped_and_stay_in_order() {
        let queue = Queue::new(1, 1000);
        let purge = |id| Purge {
            id,
            at: Timestamp(0),
            selector: Selector::All,
            done: None,
        };
        assert_eq!(queued(&queue, 1, 1), (true, 0));
        queue.purge(purge(7));
        assert_eq!(queued(&queue, 2, 1), (true, 1));
        queue.purge(purge(8));
        assert!(queue.next_write().is_none(), "the purge comes first");
        assert!(matches!(
            queue.next().await,
            Message::Purge(Purge { id: 7, .. })
        ));
        assert!(matches!(queue.next().await, Message::Write(_)));
        assert!(matches!(
            queue.next().await,
            Message::Purge(Purge { id: 8, .. })
        ));
    }
}
