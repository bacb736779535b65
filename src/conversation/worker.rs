//! Background worker: summarises turns, and removes old turns and ended conversations.
//!
//! All state here is a cache. The database rows alone decide what is due, so the sweep of any
//! process finds what a dead process or a full queue lost.

mod attempt;
mod backlog;
mod batch;
mod commit;
mod fair_queue;
mod moves;
mod name;
mod prune;
mod summarise;
mod sweep;
#[cfg(test)]
mod tests;
mod wait;

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_memory::Namespace;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::config::Strategy;
use crate::error::{ConversationError, Result};
use crate::identity::Identity;
use crate::shared::Shared;

use fair_queue::{FairQueue, Job, JobEnd};
#[cfg(any(test, feature = "conformance"))]
pub(crate) use sweep::LOCK as SWEEP;

/// Limit of conversations in a queue. The sweep finds the others.
const ROOM: usize = 16_384;

/// Time limit for the end of an attempt whose time is over.
const ENDING: Duration = Duration::from_secs(5);

/// Work that a conversation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Turns to summarise.
    Summarise,
    /// More turns than the limit.
    Prune,
}

/// Background worker of one conversation memory.
pub(crate) struct Worker {
    worker_state: Arc<WorkerState>,
    tracker: TaskTracker,
    tasks: Vec<AbortHandle>,
    /// Stops the tasks when the memory is dropped without being closed.
    _stop: DropGuard,
}

/// Shared state of the tasks.
struct WorkerState {
    shared: Arc<Shared>,
    summaries: Queue<attempt::Notes>,
    prunes: Queue<()>,
    stop: CancellationToken,
}

/// Queue of one kind of work, with the signals for its tasks.
struct Queue<N> {
    queue: Mutex<FairQueue<N>>,
    /// A conversation waits.
    work: Notify,
    /// A job ended.
    ended: Notify,
}

impl Worker {
    /// Starts the tasks that the strategy needs.
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let stop = CancellationToken::new();
        let worker_state = Arc::new(WorkerState {
            shared,
            summaries: Queue::new(),
            prunes: Queue::new(),
            stop: stop.clone(),
        });
        let tracker = TaskTracker::new();
        let mut tasks = Vec::new();
        let strategy = worker_state.shared.config.strategy;
        if strategy == Strategy::RollingSummary {
            for _ in 0..worker_state.shared.config.summarizer.concurrency {
                tasks.push(
                    tracker
                        .spawn(Arc::clone(&worker_state).summarise())
                        .abort_handle(),
                );
            }
        }
        if strategy != Strategy::None {
            tasks.push(
                tracker
                    .spawn(Arc::clone(&worker_state).prune())
                    .abort_handle(),
            );
            if worker_state.shared.stays {
                tasks.push(
                    tracker
                        .spawn(sweep::Sweeper::new(Arc::clone(&worker_state)).run())
                        .abort_handle(),
                );
            }
        }
        tracker.close();
        Self {
            worker_state,
            tracker,
            tasks,
            _stop: stop.drop_guard(),
        }
    }

    /// Reports due work. Cheap; never waits.
    pub(crate) fn wake(&self, identity: &Identity, due: Due) {
        // A conversation with due work has a complete identity.
        if let Ok(namespace) = identity.namespace() {
            self.worker_state.wake(&namespace, due);
        }
    }

    /// Summarises the due turns now, and returns the number of turns that still wait.
    ///
    /// # Errors
    /// `Corrupt`, `Store`; `Closed` if the memory is closed meanwhile.
    pub(crate) async fn summarise(&self, identity: &Identity, within: Duration) -> Result<u64> {
        let namespace = identity.namespace()?;
        let worker_state = &self.worker_state;
        if worker_state.shared.config.strategy != Strategy::RollingSummary {
            return Ok(0);
        }
        match tokio::time::timeout(within, worker_state.summarise_now(&namespace)).await {
            Ok(Err(error)) => return Err(error),
            // Nobody else goes on with it, so the health is that of its end.
            Err(_) if !worker_state.shared.stays => self.close(ENDING).await,
            Ok(Ok(())) | Err(_) => {}
        }
        summarise::due(&worker_state.shared, &namespace).await
    }

    /// Drops what is queued or in flight for a conversation.
    pub(crate) fn forgotten(&self, namespace: &Namespace) {
        self.worker_state.summaries.queue().forget(namespace);
        self.worker_state.prunes.queue().forget(namespace);
    }

    /// Stops all tasks, and waits at most `within` for them.
    pub(crate) async fn close(&self, within: Duration) {
        self.worker_state.stop.cancel();
        if tokio::time::timeout(within, self.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!("what goes on behind conversations did not end in time");
            self.tasks.iter().for_each(AbortHandle::abort);
        }
    }
}

impl WorkerState {
    fn wake(&self, namespace: &Namespace, due: Due) {
        match due {
            Due::Summarise
                if self.shared.config.strategy == Strategy::RollingSummary && self.shared.stays =>
            {
                self.summaries.wake(namespace);
                self.count();
            }
            Due::Summarise => {}
            Due::Prune => self.prunes.wake(namespace),
        }
    }

    /// Summarises until nothing is due or the summarizer refuses permanently.
    async fn summarise_now(&self, namespace: &Namespace) -> Result<()> {
        let mut pushed = false;
        let failures = summarise::failures(&self.shared, namespace).await?;
        loop {
            let ended = self.summaries.ended.notified();
            tokio::pin!(ended);
            // From here on no end of a job is missed.
            ended.as_mut().enable();
            let out = self.summaries.queue().is_out(namespace);
            if !pushed || out {
                if summarise::due(&self.shared, namespace).await? == 0 && out {
                    return Ok(());
                }
                self.summaries.force(namespace);
                pushed = true;
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(ConversationError::Closed),
                () = ended => {}
            }
            // A refused credential or request would be refused again.
            if summarise::is_refused(&self.shared, namespace, failures).await? {
                return Ok(());
            }
        }
    }

    /// Summarises the waiting conversations, one after the other.
    async fn summarise(self: Arc<Self>) {
        while let Some(job) = self.summaries.next(&self.stop).await {
            let Job {
                namespace,
                forced,
                gone,
                notes,
            } = job;
            let (worker_state, whose) = (Arc::clone(&self), namespace.clone());
            // Its own task: a panic ends the attempt, not the worker.
            let attempt = tokio::spawn(async move {
                summarise::attempt(
                    &worker_state.shared,
                    &whose,
                    (&worker_state.stop, &gone),
                    forced,
                    notes,
                )
                .await
            });
            let (ended, notes) = AbortOnDropHandle::new(attempt)
                .await
                .unwrap_or_else(|error| {
                    tracing::error!(
                        panicked = error.is_panic(),
                        "an attempt to summarise a conversation broke off"
                    );
                    (
                        JobEnd::Rest(wait::jittered(self.shared.config.summarizer.max_retry_wait)),
                        attempt::Notes::default(),
                    )
                });
            self.summaries.end(&namespace, ended, notes);
            self.count();
        }
    }

    /// Removes turns over the limits, of one conversation after the other.
    async fn prune(self: Arc<Self>) {
        while let Some(job) = self.prunes.next(&self.stop).await {
            let ended = prune::prune(&self.shared, &job.namespace).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the oldest turns of a conversation could not be removed; it is tried again");
                // The next sweep retries it.
                JobEnd::Done
            });
            self.prunes.end(&job.namespace, ended, ());
        }
    }

    fn count(&self) {
        let waiting = self.summaries.queue().len() as u64;
        self.shared
            .counters
            .backlog
            .store(waiting, Ordering::Relaxed);
    }
}

impl<N: Clone + Default> Queue<N> {
    fn new() -> Self {
        Self {
            queue: Mutex::new(FairQueue::new(ROOM)),
            work: Notify::new(),
            ended: Notify::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, FairQueue<N>> {
        self.queue.lock()
    }

    fn wake(&self, namespace: &Namespace) {
        if self.queue().wake(namespace) {
            self.work.notify_one();
        }
    }

    fn force(&self, namespace: &Namespace) {
        if self.queue().force(namespace) {
            self.work.notify_one();
        }
    }

    fn end(&self, namespace: &Namespace, ended: JobEnd, notes: N) {
        if self.queue().ended(namespace, ended, notes, Instant::now()) {
            self.work.notify_one();
        }
        self.ended.notify_waiters();
    }

    /// Waits for the next job; `None` after the worker was stopped.
    async fn next(&self, stop: &CancellationToken) -> Option<Job<N>> {
        loop {
            if stop.is_cancelled() {
                return None;
            }
            let until = match self.queue().next(Instant::now()) {
                Ok(job) => {
                    // One notification may stand for several conversations.
                    self.work.notify_one();
                    return Some(job);
                }
                Err(until) => until,
            };
            let alarm = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return None,
                () = self.work.notified() => {}
                () = alarm => {}
            }
        }
    }
}
