//! Writer thread: commits waiting batches in one transaction, and only then answers.
//!
//! A batch that fails is undone alone; a failed commit fails every batch of its group. Nothing is
//! acknowledged before its commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::apply::Work;
use super::error::is_environmental;
use super::pool::{ConnectionPool, PooledConnection, WRITER};
use super::tidy::{Tidy, empty_log};
use crate::error::{Result, StoreError};
use crate::ops::Written;
use crate::requests::{Batch, PendingOp};

/// Limit on the batches of a group.
const GROUP_BATCHES: usize = 256;
/// Limit of bytes in a group; one batch may be larger.
const GROUP_BYTES: usize = 8 << 20;
/// Longest wait of recomputable writes for a lock that many processes share.
///
/// Also how long they do not wait again for a lock that one process kept.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Command of the thread.
pub(super) enum Command {
    /// Write a batch.
    Write(Waiting),
    /// Run other work with the connections.
    Run(Box<dyn FnOnce(&ConnectionPool) + Send>),
    /// Empty the log, close the connection, end.
    Close(oneshot::Sender<Result<()>>),
}

/// A batch that waits for its commit.
pub(super) struct Waiting {
    /// The batch.
    pub(super) batch: Batch,
    /// The waiter.
    pub(super) reply: oneshot::Sender<Result<Vec<Written>>>,
    /// Its share of the limit on waiting bytes.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The thread's state.
pub(super) struct Writer {
    pool: Arc<ConnectionPool>,
    commands: Receiver<Command>,
    tidy: Tidy,
    /// Until when writes that can be lost don't wait for the lock, because another process holds
    /// it.
    impatient_until: Option<Instant>,
}

impl Writer {
    /// Makes the thread's state. `locked` says that another process holds the lock for writing.
    pub(super) fn new(
        pool: Arc<ConnectionPool>,
        commands: Receiver<Command>,
        locked: bool,
    ) -> Self {
        let impatient_until = locked.then(|| Instant::now() + IMPATIENCE);
        let tidy = Tidy::of(pool.file().path(), pool.file().log_bytes());
        Self {
            pool,
            commands,
            tidy,
            impatient_until,
        }
    }

    /// Returns how long a group waits for the lock.
    ///
    /// A group of recomputable rows waits only as long as one commit of another process takes.
    fn patience(&self, group: &Group) -> Duration {
        let all = self.pool.file().busy_timeout();
        if group.waiting.iter().any(Waiting::must_not_be_lost) {
            return all;
        }
        match self.impatient_until {
            Some(until) if Instant::now() < until => Duration::ZERO,
            _ => self.pool.file().brief_wait(),
        }
    }

    /// Runs until it is closed or every sender is dropped.
    pub(super) fn run(mut self) {
        let mut next = None;
        loop {
            let command = match next.take().map_or_else(|| self.wait(), Ok) {
                Ok(command) => command,
                Err(RecvTimeoutError::Timeout) => {
                    self.tidy.work(&self.pool);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break self.end().unwrap_or_default(),
            };
            match command {
                Command::Write(first) => next = self.group(first),
                Command::Run(work) => work(&self.pool),
                Command::Close(reply) => {
                    let _ = reply.send(self.end());
                    break;
                }
            }
        }
    }

    fn wait(&self) -> Result<Command, RecvTimeoutError> {
        match self.tidy.due() {
            Some(at) => self.commands.recv_deadline(at),
            None => self
                .commands
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Commits a batch together with waiting and arriving ones; returns a command that must run
    /// next.
    fn group(&mut self, first: Waiting) -> Option<Command> {
        let mut group = Group::new(first);
        match self.commit(&mut group) {
            Ok(results) => group.answer(results),
            // The failure may concern one batch only: each gets its own transaction.
            Err(error) if group.waiting.len() > 1 && !is_environmental(&error) => {
                for waiting in std::mem::take(&mut group.waiting) {
                    let mut alone = Group {
                        full: true,
                        ..Group::new(waiting)
                    };
                    match self.commit(&mut alone) {
                        Ok(results) => alone.answer(results),
                        Err(error) => alone.fail(&error),
                    }
                }
            }
            Err(error) if error.trouble() == "full" => self.delete_on_full_disk(&mut group, &error),
            Err(error) => group.fail(&error),
        }
        group.next
    }

    /// Carries out the deletes of a group that found the disk full, in the room that was reserved
    /// for them.
    fn delete_on_full_disk(&mut self, group: &mut Group, full: &StoreError) {
        for waiting in std::mem::take(&mut group.waiting) {
            let mut alone = Group {
                full: true,
                ..Group::new(waiting)
            };
            let done = if alone.waiting[0].deletes() {
                self.tidy.release_reserve();
                self.commit(&mut alone).or_else(|error| {
                    // The log of the deletes before has taken the room, unless a reader still needs
                    // it.
                    let emptied =
                        error.trouble() == "full" && empty_log(&self.pool).unwrap_or(false);
                    if emptied {
                        self.commit(&mut alone)
                    } else {
                        Err(error)
                    }
                })
            } else {
                Err(full.clone())
            };
            match done {
                Ok(results) => alone.answer(results),
                Err(error) => alone.fail(&error),
            }
        }
    }

    fn commit(&mut self, group: &mut Group) -> Result<Vec<Result<Vec<Written>>>> {
        let (patience, all) = (self.patience(group), self.pool.file().busy_timeout());
        let mut locked = false;
        let done = self.pool.with(WRITER, true, |pooled| {
            pooled.set_durable(group.durable)?;
            let PooledConnection {
                connection,
                free_row_ids,
                ..
            } = pooled;
            let connection = &*connection;
            let begun = begin(connection, patience, patience.max(IMPATIENCE).min(all));
            connection.busy_timeout(all)?;
            locked = begun.is_err();
            let transaction = begun?;
            let mut work = Work::new(&transaction, free_row_ids);
            let mut results = Vec::new();
            loop {
                for waiting in &group.waiting[results.len()..] {
                    let result = work.batch(&waiting.batch);
                    if let Err(error) = &result
                        && is_of_database(error)
                    {
                        return Err(error.clone());
                    }
                    results.push(result);
                }
                // Batches that arrived meanwhile share this commit instead of waiting for another.
                group.gather(&self.commands);
                if group.waiting.len() == results.len() {
                    break;
                }
            }
            let finished = work.finish()?;
            transaction.commit()?;
            free_row_ids.add(&finished.gone);
            Ok((results, finished))
        });
        self.impatient_until = locked.then(|| Instant::now() + IMPATIENCE);
        let (results, finished) = done?;
        self.tidy.note(&finished);
        Ok(results)
    }

    fn end(&self) -> Result<()> {
        // What is in the log is safe there; the next process moves it.
        let emptied = empty_log(&self.pool);
        self.pool.close(WRITER);
        emptied.map(|_| ())
    }
}

/// Begins a write transaction, and waits for the lock for at most `patience`.
///
/// While other connections commit, it waits for at most `longest`: then many processes share the
/// lock, and none keeps it.
fn begin(
    connection: &Connection,
    patience: Duration,
    longest: Duration,
) -> Result<Transaction<'_>> {
    let attempt = |wait: Duration| {
        connection.busy_timeout(wait)?;
        // Not the checked form, which would borrow the connection until the end: the wait is set
        // back first.
        Ok(Transaction::new_unchecked(
            connection,
            TransactionBehavior::Immediate,
        )?)
    };
    let begun = attempt(Duration::ZERO);
    if !is_locked(&begun) || patience.is_zero() {
        return begun;
    }
    // Grows with each commit of another connection.
    let commits = || connection.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0));
    let until = Instant::now() + longest;
    let mut seen = commits()?;
    loop {
        let begun = attempt(patience);
        if !is_locked(&begun) || Instant::now() >= until {
            return begun;
        }
        let now = commits()?;
        if now == seen {
            return begun;
        }
        seen = now;
    }
}

fn is_locked<T>(result: &Result<T>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.trouble() == "locked")
}

/// Batches that share one commit.
struct Group {
    waiting: Vec<Waiting>,
    bytes: usize,
    /// Whether the commit waits for the disk.
    durable: bool,
    /// Whether the group accepts no more batches.
    full: bool,
    /// A command from the queue that cannot join the group.
    next: Option<Command>,
}

impl Group {
    fn new(first: Waiting) -> Self {
        Self {
            bytes: first.weight(),
            durable: first.is_durable(),
            waiting: vec![first],
            full: false,
            next: None,
        }
    }

    /// Adds the waiting batches.
    fn gather(&mut self, commands: &Receiver<Command>) {
        while !self.full {
            match commands.try_recv() {
                // What must be durable cannot join a transaction that was begun without.
                Ok(Command::Write(waiting)) if self.durable || !waiting.is_durable() => {
                    self.bytes += waiting.weight();
                    self.waiting.push(waiting);
                    self.full = self.waiting.len() >= GROUP_BATCHES || self.bytes >= GROUP_BYTES;
                }
                Ok(other) => {
                    self.next = Some(other);
                    self.full = true;
                }
                Err(_) => return,
            }
        }
    }

    fn answer(&mut self, results: Vec<Result<Vec<Written>>>) {
        for (waiting, result) in std::mem::take(&mut self.waiting).into_iter().zip(results) {
            // A caller that no longer waits does not need the answer.
            let _ = waiting.reply.send(result);
        }
    }

    fn fail(&mut self, error: &StoreError) {
        for waiting in std::mem::take(&mut self.waiting) {
            let _ = waiting.reply.send(Err(error.clone()));
        }
    }
}

impl Waiting {
    fn weight(&self) -> usize {
        self.batch.ops.iter().map(PendingOp::weight).sum()
    }

    fn is_durable(&self) -> bool {
        self.batch.ops.iter().any(PendingOp::is_durable)
    }

    /// Returns whether it is worth a long wait: what cannot be computed again, and deletes.
    fn must_not_be_lost(&self) -> bool {
        self.is_durable() || self.deletes()
    }

    fn deletes(&self) -> bool {
        self.batch
            .ops
            .iter()
            .any(|op| matches!(op, PendingOp::Delete(_)))
    }
}

/// Returns whether an error comes from the database and spoils the transaction.
const fn is_of_database(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Corrupt(_) | StoreError::Unavailable { .. }
    )
}
