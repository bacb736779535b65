//! What goes on behind the callers' backs: turns are folded into summaries, old turns and ended dialogues are removed.
//!
//! Nothing here is remembered but for convenience: what is due is told by the rows alone, so whatever is lost with a process, or does
//! not fit into a line, is found again by the sweep of some process.

mod batch;
mod commit;
mod fit;
mod fold;
mod line;
mod look;
mod moves;
mod name;
mod prune;
mod sweep;
#[cfg(test)]
mod trials;
mod wait;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helmdeck_memory::Namespace;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::config::Strategy;
use crate::error::{ConversationError, Result};
use crate::ground::Ground;
use crate::identity::Identity;

use line::{Ended, Job, Line};
pub(crate) use sweep::LOCK as SWEEP;

/// The most dialogues that a line holds; the sweep finds the others.
const ROOM: usize = 16_384;

/// What a dialogue waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Turns are to be folded into the summary.
    Fold,
    /// There are more turns than are to be kept.
    Prune,
}

/// What goes on behind the callers' backs.
pub(crate) struct Upkeep {
    crew: Arc<Crew>,
    tracker: TaskTracker,
    tasks: Vec<AbortHandle>,
    /// Who drops the memory without closing it stops the tasks too.
    _stop: DropGuard,
}

/// What the tasks share.
struct Crew {
    ground: Arc<Ground>,
    folds: Shift<fold::Notes>,
    prunes: Shift<()>,
    stop: CancellationToken,
}

/// A line with those who work on it.
struct Shift<N> {
    line: Mutex<Line<N>>,
    /// Somebody waits.
    work: Notify,
    /// A job ended.
    ended: Notify,
}

impl Upkeep {
    /// Begins; spawns no task that is not needed.
    pub(crate) fn start(ground: Arc<Ground>) -> Self {
        let stop = CancellationToken::new();
        let crew = Arc::new(Crew { ground, folds: Shift::new(), prunes: Shift::new(), stop: stop.clone() });
        let tracker = TaskTracker::new();
        let mut tasks = Vec::new();
        let strategy = crew.ground.config.strategy;
        if strategy == Strategy::RollingSummary {
            for _ in 0..crew.ground.config.summarizer.concurrency {
                tasks.push(tracker.spawn(Arc::clone(&crew).fold()).abort_handle());
            }
        }
        if strategy != Strategy::None {
            tasks.push(tracker.spawn(Arc::clone(&crew).prune()).abort_handle());
            if crew.ground.stays {
                tasks.push(tracker.spawn(sweep::Sweeper::new(Arc::clone(&crew)).run()).abort_handle());
            }
        }
        tracker.close();
        Self { crew, tracker, tasks, _stop: stop.drop_guard() }
    }

    /// Says that something is due. Cheap; never waits.
    pub(crate) fn wake(&self, identity: &Identity, due: Due) {
        // Whoever got as far as to have something due has a place.
        if let Ok(namespace) = identity.namespace() {
            self.crew.wake(&namespace, due);
        }
    }

    /// Folds what is due now, and returns how many turns still wait.
    ///
    /// # Errors
    /// `Corrupt`, `Store`; `Closed` if the memory is closed meanwhile.
    pub(crate) async fn fold(&self, identity: &Identity, within: Duration) -> Result<u64> {
        let namespace = identity.namespace()?;
        let crew = &self.crew;
        if crew.ground.config.strategy != Strategy::RollingSummary {
            return Ok(0);
        }
        match tokio::time::timeout(within, crew.fold_now(&namespace)).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => fold::due(&crew.ground, &namespace).await,
        }
    }

    /// Drops what is queued or in flight for a dialogue.
    pub(crate) fn forgotten(&self, namespace: &Namespace) {
        self.crew.folds.line().forget(namespace);
        self.crew.prunes.line().forget(namespace);
    }

    /// Ends all of it, and waits at most `within` for that.
    pub(crate) async fn close(&self, within: Duration) {
        self.crew.stop.cancel();
        if tokio::time::timeout(within, self.tracker.wait()).await.is_err() {
            tracing::warn!("what goes on behind conversations did not end in time");
            self.tasks.iter().for_each(AbortHandle::abort);
        }
    }
}

impl Crew {
    fn wake(&self, namespace: &Namespace, due: Due) {
        match due {
            Due::Fold if self.ground.config.strategy == Strategy::RollingSummary && self.ground.stays => {
                self.folds.wake(namespace);
                self.count();
            }
            Due::Fold => {}
            Due::Prune => self.prunes.wake(namespace),
        }
    }

    /// Folds until nothing is due, or the summarizer refuses for good.
    async fn fold_now(&self, namespace: &Namespace) -> Result<()> {
        let mut pushed = false;
        let failures = fold::failures(&self.ground, namespace).await?;
        loop {
            let ended = self.folds.ended.notified();
            tokio::pin!(ended);
            // From here on no end is missed.
            ended.as_mut().enable();
            let out = self.folds.line().is_out(namespace);
            if !pushed || out {
                if fold::due(&self.ground, namespace).await? == 0 && out {
                    return Ok(());
                }
                self.folds.force(namespace);
                pushed = true;
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(ConversationError::Closed),
                () = ended => {}
            }
            // Nobody gets another answer from a summarizer that refused the credential or the request.
            if fold::is_refused(&self.ground, namespace, failures).await? {
                return Ok(());
            }
        }
    }

    /// Folds what waits, one dialogue after the other.
    async fn fold(self: Arc<Self>) {
        while let Some(job) = self.folds.next(&self.stop).await {
            let Job { namespace, forced, gone, notes } = job;
            let (crew, whose) = (Arc::clone(&self), namespace.clone());
            // A task of its own: a panic ends the attempt, not who makes it.
            let attempt =
                tokio::spawn(
                    async move { fold::attempt(&crew.ground, &whose, (&crew.stop, &gone), forced, notes).await },
                );
            let (ended, notes) = AbortOnDropHandle::new(attempt).await.unwrap_or_else(|error| {
                tracing::error!(panicked = error.is_panic(), "an attempt to summarise a conversation broke off");
                (Ended::Rest(wait::jittered(self.ground.config.summarizer.max_retry_wait)), fold::Notes::default())
            });
            self.folds.end(&namespace, ended, notes);
            self.count();
        }
    }

    /// Removes turns that are not to be kept, of one dialogue after the other.
    async fn prune(self: Arc<Self>) {
        while let Some(job) = self.prunes.next(&self.stop).await {
            let ended = prune::prune(&self.ground, &job.namespace).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the oldest turns of a dialogue could not be removed; it is tried again");
                // The next sweep finds it.
                Ended::Done
            });
            self.prunes.end(&job.namespace, ended, ());
        }
    }

    fn count(&self) {
        let waiting = self.folds.line().len() as u64;
        self.ground.counters.backlog.store(waiting, Ordering::Relaxed);
    }
}

impl<N: Clone + Default> Shift<N> {
    fn new() -> Self {
        Self { line: Mutex::new(Line::new(ROOM)), work: Notify::new(), ended: Notify::new() }
    }

    fn line(&self) -> MutexGuard<'_, Line<N>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, namespace: &Namespace) {
        if self.line().wake(namespace) {
            self.work.notify_one();
        }
    }

    fn force(&self, namespace: &Namespace) {
        if self.line().force(namespace) {
            self.work.notify_one();
        }
    }

    fn end(&self, namespace: &Namespace, ended: Ended, notes: N) {
        if self.line().ended(namespace, ended, notes, Instant::now()) {
            self.work.notify_one();
        }
        self.ended.notify_waiters();
    }

    /// Returns the next job when there is one, `None` when there will be none any more.
    async fn next(&self, stop: &CancellationToken) -> Option<Job<N>> {
        loop {
            if stop.is_cancelled() {
                return None;
            }
            let until = match self.line().next(Instant::now()) {
                Ok(job) => {
                    // One word may stand for many who wait.
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
