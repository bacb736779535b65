//! Writer task: commits waiting batches in one transaction, and only then answers.
//!
//! A batch that fails changes nothing and affects no other; a failed commit fails every batch of
//! its group. Only a certain commit is acknowledged, and a possible commit is not retried.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::apply::{self, Done};
use super::connect::within_long;
use super::db::Database;
use super::error::{Failure, Outcome, Remedy, unavailable};
use super::new_rows::RecentRows;
use super::outbox::Outbox;
use super::purge;
use crate::config::Config;
use crate::error::{Result, StoreError};
use crate::ops::Written;
use crate::requests::{Batch, PendingOp};

/// Limit of batches in a group.
const GROUP_BATCHES: usize = 256;
/// Limit of operations in a group; one batch may have more.
const GROUP_OPS: usize = 2048;
/// Limit of bytes in a group; one batch may be larger.
const GROUP_BYTES: usize = 8 << 20;
/// How often a transaction is tried.
const TRIES: u32 = 5;

/// Command of the task.
pub(super) enum Command {
    /// Write a batch.
    Write(Waiting),
    /// Write the waiting batches, then end.
    Close(oneshot::Sender<()>),
}

/// A batch that waits for its commit.
pub(super) struct Waiting {
    /// The batch.
    pub(super) batch: Arc<Batch>,
    /// The waiter.
    pub(super) reply: oneshot::Sender<Result<Vec<Written>>>,
    /// Its share of the limit on waiting bytes.
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Waiting {
    fn answer(self, answer: Result<Vec<Written>>) {
        // A caller that no longer waits does not need the answer.
        let _ = self.reply.send(answer);
    }
}

/// The task's state.
pub(super) struct Writer {
    /// The connections that it shares with readers.
    pub(super) database: Database,
    /// Where deletes are announced.
    pub(super) outbox: Arc<Outbox>,
    /// Deletes over all namespaces, which run beside the other writes.
    pub(super) purges: TaskTracker,
    /// The rows that were written recently.
    pub(super) recent: RecentRows,
    /// How long a group may take.
    pub(super) limits: WriteLimits,
}

/// Time limits of a group of writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteLimits {
    /// Time after which a group without an answer fails, retries included.
    whole: Duration,
    /// Time after which a failed group shows that the server is silent.
    silent: Duration,
}

impl WriteLimits {
    /// Returns the limits of a configuration. The wait for a lock ends first, at the server.
    pub(super) fn of(config: &Config) -> Self {
        let silent = config.postgres.connect_timeout;
        Self {
            whole: silent.max(config.busy_timeout).mul_f32(1.25),
            silent,
        }
    }
}

impl Writer {
    /// Runs until it is closed or every sender is dropped.
    pub(super) async fn run(self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut waiting = VecDeque::new();
        let mut closing: Option<oneshot::Sender<()>> = None;
        loop {
            while let Ok(command) = commands.try_recv() {
                accept(command, &mut waiting, &mut closing);
            }
            if waiting.is_empty() {
                if closing.is_some() {
                    break;
                }
                match commands.recv().await {
                    Some(command) => accept(command, &mut waiting, &mut closing),
                    None => break,
                }
                // Batches that arrive at the same moment join.
                tokio::task::yield_now().await;
                continue;
            }
            if self.step(&mut waiting).await {
                // They have waited as long, and would wait as long again.
                while let Ok(command) = commands.try_recv() {
                    accept(command, &mut waiting, &mut closing);
                }
                for waiting in waiting.drain(..) {
                    let message =
                        "the PostgreSQL server did not answer; this write was not sent".to_owned();
                    waiting.answer(Err(unavailable(message)));
                }
            }
        }
        self.purges.close();
        self.purges.wait().await;
        if let Some(reply) = closing {
            let _ = reply.send(());
        }
    }

    /// Does the first of what waits, and with it as much of the rest as can share its transaction.
    /// Returns whether the server was silent.
    async fn step(&self, waiting: &mut VecDeque<Waiting>) -> bool {
        let count = group_length(waiting);
        if count == 0 {
            self.alone(waiting).await;
            return false;
        }
        let began = Instant::now();
        let batches: Vec<Arc<Batch>> = waiting
            .iter()
            .take(count)
            .map(|waiting| Arc::clone(&waiting.batch))
            .collect();
        match self.group(&batches, began + self.limits.whole).await {
            Ok(done) => {
                self.recent.note(&batches);
                let (next_alone, first) =
                    (done.next_alone, take_first(waiting, done.answers.len()));
                for (answer, waiting) in done.answers.into_iter().zip(first) {
                    waiting.answer(answer);
                }
                if next_alone {
                    self.alone(waiting).await;
                }
            }
            // The failure may concern one batch only: each gets its own transaction.
            Err(Failure { error, .. }) if count > 1 && !error.is_temporary() => {
                for _ in 0..count {
                    self.alone(waiting).await;
                }
            }
            Err(Failure { error, remedy }) => {
                for waiting in take_first(waiting, count) {
                    waiting.answer(Err(error.clone()));
                }
                return remedy == Remedy::Discard && began.elapsed() >= self.limits.silent;
            }
        }
        false
    }

    async fn alone(&self, waiting: &mut VecDeque<Waiting>) {
        let Some(first) = waiting.pop_front() else {
            return;
        };
        let batch = Arc::clone(&first.batch);
        self.recent.note(std::slice::from_ref(&batch));
        if let Some(delete) = purge::everywhere(&batch) {
            let purge = purge::run(
                self.database.clone(),
                delete.clone(),
                Arc::clone(&self.outbox),
            );
            self.purges.spawn(async move { first.answer(purge.await) });
            return;
        }
        let mut tries = 0;
        let answer = loop {
            let outcome = match self.database.take().await {
                Ok(db) => {
                    let outcome = within_long(apply::alone(&db, &batch, &self.outbox)).await;
                    db.give_back(outcome).await
                }
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok(answer) => break answer,
                Err(failure) => match again(failure, &mut tries).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        first.answer(answer);
    }

    /// Runs a group until a deadline, which holds for all tries together.
    async fn group(&self, batches: &[Arc<Batch>], end: Instant) -> Outcome<Done> {
        let mut tries = 0;
        loop {
            let db = until(end, self.database.take()).await?;
            let outcome = until(end, apply::group(&db, batches, &self.outbox, &self.recent)).await;
            // A deadline may cut off a commit.
            let outcome = outcome.map_err(|failure| match failure.remedy {
                Remedy::Discard if Instant::now() >= end => failure.after_commit(),
                _ => failure,
            });
            let failure = match db.give_back_until(end, outcome).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let remedy = failure.remedy;
            again(failure, &mut tries)
                .await
                .map_err(|error| Failure { error, remedy })?;
        }
    }
}

/// Waits for an outcome until a deadline.
async fn until<T>(end: Instant, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    match tokio::time::timeout_at(end, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::timeout("the PostgreSQL server's answer")),
    }
}

/// Waits a little before the next try, if there is one.
pub(super) async fn again(failure: Failure, tries: &mut u32) -> Result<()> {
    *tries += 1;
    if *tries >= TRIES || !matches!(failure.remedy, Remedy::Again | Remedy::Reconnect) {
        return Err(failure.error);
    }
    // Jitter, so that the same transactions do not collide again.
    let random = RandomState::new().hash_one(*tries) % 1024;
    tokio::time::sleep(Duration::from_micros((random + 64) << *tries)).await;
    Ok(())
}

fn accept(
    command: Command,
    waiting: &mut VecDeque<Waiting>,
    closing: &mut Option<oneshot::Sender<()>>,
) {
    match command {
        Command::Write(batch) if closing.is_none() => waiting.push_back(batch),
        Command::Write(batch) => batch.answer(Err(StoreError::Closed)),
        Command::Close(reply) => *closing = Some(reply),
    }
}

/// Returns how many waiting batches can share a transaction; 0 if the first needs its own.
fn group_length(waiting: &VecDeque<Waiting>) -> usize {
    let (mut ops, mut bytes) = (0, 0);
    let fits = |waiting: &&Waiting| {
        let is_within = ops < GROUP_OPS && bytes < GROUP_BYTES;
        ops += waiting.batch.ops.len();
        bytes += waiting
            .batch
            .ops
            .iter()
            .map(PendingOp::weight)
            .sum::<usize>();
        is_within && apply::is_named(&waiting.batch)
    };
    waiting.iter().take(GROUP_BATCHES).take_while(fits).count()
}

fn take_first(waiting: &mut VecDeque<Waiting>, count: usize) -> Vec<Waiting> {
    waiting.drain(..count.min(waiting.len())).collect()
}
