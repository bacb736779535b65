//! The jobs of this process: queued, running, and ended ones whose result only this process has.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helmdeck_core::{Call, Clock, Code, Correlation, Error, Identity, Result, Timestamp};
use helmdeck_memory::KeyRing;
use helmdeck_system::{Replica, System};
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::book::{JobBook, unavailable};
use super::claims::Claims;
use super::live::{Caller, Live};
use super::metrics::JobMetrics;
use super::queue::Queue;
use super::{Job, JobConfig, JobId, keeper};
use crate::metrics::Metrics;
use crate::tail::Tail;

/// How long all events of a job are kept after its end, for slow or reconnecting readers.
const EVENTS_FOR: Duration = Duration::from_secs(15);

/// Number of the newest changes that are kept for readers of all jobs.
const CHANGES: usize = 256;

/// Limit of jobs in the shared queue whose origin this process remembers.
const ACCEPTED: usize = 1000;

/// A job that waits for its turn.
pub(super) type Waiting = (Arc<Live>, Call);

/// The jobs of this process.
pub(crate) struct Jobs {
    /// Jobs of all processes; `None` = no system database, and jobs end with this process.
    pub(super) book: Option<JobBook>,
    pub(super) config: JobConfig,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: JobMetrics,
    pub(super) running: TaskTracker,
    /// The newest changes of jobs of this process.
    pub(crate) changes: Arc<Tail<Arc<Job>>>,
    pub(super) wake: Arc<Notify>,
    pub(super) claims: Claims,
    table: Mutex<Table>,
    replica: OnceCell<Arc<Replica>>,
    keeping: AtomicBool,
    pub(super) stop: CancellationToken,
}

/// State of the jobs.
pub(super) struct Table {
    pub(super) queue: Queue<Caller, Waiting>,
    pub(super) live: BTreeMap<JobId, Arc<Live>>,
    /// Jobs whose result is in memory, oldest first, with its size.
    pub(super) results: VecDeque<(JobId, usize)>,
    pub(super) result_bytes: u64,
    pub(super) stopping: bool,
    /// What jobs belong to that this process put into the shared queue, the oldest first. Another
    /// process may take them.
    accepted: VecDeque<(JobId, Correlation)>,
}

impl Jobs {
    pub(crate) fn new(
        place: Option<(System, Option<Arc<KeyRing>>)>,
        config: JobConfig,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        stop: CancellationToken,
    ) -> Self {
        let book = place.map(|(system, keyring)| {
            JobBook::new(system, keyring, Arc::clone(&clock), config.retention)
        });
        let queue = Queue::new(config.queue, config.concurrency, config.per_caller);
        let table = Table {
            queue,
            live: BTreeMap::new(),
            results: VecDeque::new(),
            result_bytes: 0,
            stopping: false,
            accepted: VecDeque::new(),
        };
        Self {
            book,
            config,
            clock,
            metrics: metrics.register(JobMetrics::register),
            running: TaskTracker::new(),
            changes: Arc::new(Tail::new(CHANGES)),
            wake: Arc::new(Notify::new()),
            claims: Claims::new(),
            table: Mutex::new(table),
            replica: OnceCell::new(),
            keeping: AtomicBool::new(false),
            stop,
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Returns the id under which this process runs jobs; empty without a system database.
    pub(super) async fn owner(&self) -> Result<Arc<str>> {
        let Some(book) = &self.book else {
            return Ok("".into());
        };
        let replica = self
            .replica
            .get_or_try_init(|| book.system.replica())
            .await
            .map_err(unavailable)?;
        Ok(replica.id())
    }

    /// Returns this process as an owner of jobs, if it has joined.
    pub(super) fn replica(&self) -> Option<&Replica> {
        self.replica.get().map(|replica| &**replica)
    }

    /// Starts the keeper, once.
    pub(super) fn keep(self: &Arc<Self>) {
        if !self.keeping.swap(true, Ordering::Relaxed) {
            let (this, wake) = (Arc::downgrade(self), Arc::clone(&self.wake));
            tokio::spawn(
                self.stop
                    .clone()
                    .run_until_cancelled_owned(keeper::run(this, wake)),
            );
        }
    }

    /// Returns a job of this process, if it belongs to this caller.
    ///
    /// If its row is gone, because its caller was forgotten or has newer jobs, the job is gone too.
    ///
    /// # Errors
    /// `overloaded` if the job is stored and the database is not available.
    pub(super) async fn find(
        &self,
        owner: Option<&Identity>,
        id: &JobId,
    ) -> Result<Option<Arc<Live>>> {
        let Some(live) = self.known(owner, id) else {
            return Ok(None);
        };
        let Some(book) = self.book.as_ref().filter(|_| live.is_settled()) else {
            return Ok(Some(live));
        };
        let gone = book
            .system
            .gone_jobs(vec![id.to_string()])
            .await
            .map_err(unavailable)?;
        if gone.is_empty() {
            return Ok(Some(live));
        }
        self.table().clear(self.clock.now(), true, &gone);
        Ok(None)
    }

    fn known(&self, owner: Option<&Identity>, id: &JobId) -> Option<Arc<Live>> {
        let live = self.table().live.get(id).map(Arc::clone)?;
        let job = live.job();
        let over = job.state.is_final() && job.expires_at <= self.clock.now();
        (!over && owner.is_none_or(|owner| job.is_of(owner))).then_some(live)
    }

    /// Returns the ids of jobs of this process whose row is gone; none if the database is not
    /// available.
    pub(super) async fn gone(&self) -> Vec<String> {
        let Some(book) = &self.book else {
            return Vec::new();
        };
        let settled = |live: &&Arc<Live>| live.is_settled();
        let ids: Vec<_> = self
            .table()
            .live
            .values()
            .filter(settled)
            .map(|live| live.id.to_string())
            .collect();
        if ids.is_empty() {
            return ids;
        }
        book.system.gone_jobs(ids).await.unwrap_or_default()
    }

    /// Returns the numbers of waiting and running jobs of this process.
    pub(crate) fn load(&self) -> (usize, usize) {
        let table = self.table();
        (table.queue.waiting(), table.queue.running())
    }

    /// Updates the metrics of waiting and running jobs.
    pub(super) fn show(&self) {
        let (waiting, running) = self.load();
        self.metrics.stand(waiting, running);
    }
}

impl Table {
    /// Reserves a place in the queue.
    ///
    /// # Errors
    /// `overloaded` if it is full, or the process is about to end.
    pub(super) fn reserve(&mut self) -> Result<()> {
        self.admit()?;
        if !self.queue.reserve() {
            return Err(full());
        }
        Ok(())
    }

    /// Refuses new jobs if the process is about to end.
    ///
    /// # Errors
    /// `overloaded`.
    pub(super) fn admit(&self) -> Result<()> {
        if self.stopping {
            let message = "this server is about to stop and starts no job";
            return Err(
                Error::new(Code::Overloaded, message).with_retry_after(super::run::COME_BACK)
            );
        }
        Ok(())
    }

    /// Notes what a job of the shared queue belongs to.
    pub(super) fn accept(&mut self, id: JobId, correlation: Correlation) {
        if self.accepted.len() == ACCEPTED {
            self.accepted.pop_front();
        }
        self.accepted.push_back((id, correlation));
    }

    /// Takes what a job belongs to, if this process put it into the queue.
    pub(super) fn accepted(&mut self, id: &JobId) -> Option<Correlation> {
        let at = self
            .accepted
            .iter()
            .position(|(accepted, _)| accepted == id)?;
        self.accepted.remove(at).map(|(_, correlation)| correlation)
    }

    /// Keeps the result of a job in memory; the oldest results are dropped to make room.
    ///
    /// A job that is not stored is dropped with its result; a stored one stays until its row says
    /// how it ended.
    pub(super) fn keep_result(&mut self, id: &JobId, size: usize, room: u64, recorded: bool) {
        self.results.push_back((id.clone(), size));
        self.result_bytes += size as u64;
        while self.result_bytes > room
            && let Some((oldest, size)) = self.results.pop_front()
        {
            self.result_bytes -= size as u64;
            if !recorded {
                self.live.remove(&oldest);
            } else if let Some(live) = self.live.get(&oldest) {
                live.drop_result();
            }
        }
    }

    /// Removes a job, but no other run of it.
    pub(super) fn remove(&mut self, live: &Arc<Live>) {
        if self
            .live
            .get(&live.id)
            .is_some_and(|known| Arc::ptr_eq(known, live))
        {
            self.live.remove(&live.id);
        }
    }

    /// Drops jobs that are fully stored or expired, or whose row is `gone`.
    pub(super) fn clear(&mut self, now: Timestamp, recorded: bool, gone: &[String]) {
        self.live.retain(|id, live| {
            let job = live.job();
            let late = job.state.is_final() && job.expires_at <= now;
            !(late || (recorded && live.is_over()) || gone.iter().any(|gone| gone == id.as_str()))
        });
        self.live
            .values()
            .for_each(|live| live.trim(now, EVENTS_FOR));
        let live = &self.live;
        self.results.retain(|(id, _)| live.contains_key(id));
        self.result_bytes = self.results.iter().map(|(_, size)| *size as u64).sum();
    }
}

/// Error for a job that found no place.
pub(super) fn full() -> Error {
    Error::new(Code::Overloaded, "too many jobs wait").with_retry_after(super::run::COME_BACK)
}
