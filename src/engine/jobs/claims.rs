//! Jobs of the shared queue: this process takes those that it has room for, and runs them.
//!
//! A poll is one statement. It comes at once when this process accepts a job or one of its runs
//! ends, and about once a second otherwise; a process without a free place does not poll.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use helmdeck_core::jitter::jittered;
use helmdeck_core::{Call, Code, Error, Result};
use helmdeck_system::queue::{Claim, ClaimId, ClaimedJob};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::live::{Live, StopReason};
use super::sealed_call::{self, OpenedCall};
use super::table::Jobs;
use super::{Job, document};
use crate::call_runner::JobRunner;

/// Interval of polls, while there is a free place.
const EVERY: Duration = Duration::from_secs(1);

/// How long the jobs of a claim are returned whose answer was lost: it may go on in the database.
const LOST_FOR: Duration = Duration::from_secs(120);

/// State of this process's claims.
pub(super) struct Claims {
    /// Whether this process takes jobs of the shared queue. Only then does it put jobs there.
    on: AtomicBool,
    /// Whether it takes no more, because it is about to end.
    over: AtomicBool,
    /// Number of the last claim.
    last: AtomicU64,
    /// Claims whose answer was lost, with when their jobs need no more be returned: there may be
    /// jobs of this process that it does not know.
    lost: Mutex<Vec<(ClaimId, Instant)>>,
    /// Held during a poll.
    polling: tokio::sync::Mutex<()>,
    /// Wakes the poll.
    pub(super) wake: Arc<Notify>,
    /// Counts jobs that began, for those that follow a job which waits.
    pub(super) begun: watch::Sender<u64>,
    /// Labels of the calls that this process can run, with the revision of the packs that they were
    /// made of.
    labels: Mutex<Option<(u64, Arc<[String]>)>>,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            over: AtomicBool::new(false),
            last: AtomicU64::new(0),
            lost: Mutex::default(),
            polling: tokio::sync::Mutex::default(),
            wake: Arc::new(Notify::new()),
            begun: watch::Sender::new(0),
            labels: Mutex::new(None),
        }
    }

    /// Returns whether new jobs may wait in the shared queue.
    pub(super) fn are_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Takes no more jobs. Those that wait are left to other processes.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Waits until a poll that has begun has started or returned what it claimed.
    pub(super) async fn settle(&self) {
        drop(self.polling.lock().await);
    }

    /// Notes that the answer to a claim was lost, or not used.
    fn lose(&self, claim: ClaimId) {
        self.lost.lock().push((claim, Instant::now() + LOST_FOR));
    }

    fn are_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Jobs {
    /// Begins to take jobs of the queue that replicas share, if there is one and a key opens its
    /// calls.
    pub(crate) fn claim_in_background(self: &Arc<Self>, runner: Weak<dyn JobRunner>) {
        let shared = self
            .book
            .as_ref()
            .is_some_and(|book| book.keyring.is_some() && book.system.has_queue());
        if !shared || self.claims.on.swap(true, Ordering::AcqRel) {
            return;
        }
        let (jobs, wake) = (Arc::downgrade(self), Arc::clone(&self.claims.wake));
        let polls = async move {
            loop {
                let pause = match (jobs.upgrade(), runner.upgrade()) {
                    (Some(jobs), Some(runner)) => jobs.poll(&runner).await,
                    _ => return,
                };
                match pause {
                    Some(pause) => drop(tokio::time::timeout(pause, wake.notified()).await),
                    None => wake.notified().await,
                }
            }
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(polls));
    }

    /// Takes no more jobs of the shared queue.
    pub(crate) fn claim_no_more(&self) {
        self.claims.end();
    }

    /// Takes as many jobs as there are free places, and starts them.
    ///
    /// Returns when to poll again; `None` = when a place is free.
    async fn poll(self: &Arc<Self>, runner: &Arc<dyn JobRunner>) -> Option<Duration> {
        let _polling = self.claims.polling.lock().await;
        if self.claims.are_over() {
            return None;
        }
        let places = self.table().queue.hold();
        if places == 0 {
            return None;
        }
        let claimed = self.claim(runner, places).await.unwrap_or_default();
        let mut started = 0;
        for job in claimed {
            started += usize::from(self.start_claimed(job, runner).await);
        }
        self.table().queue.free(places.saturating_sub(started));
        // A job of this process alone may have found all places held.
        self.dispatch(runner);
        Some(jittered(EVERY, 0.75..=1.25))
    }

    /// Claims jobs; none if the database is not available.
    async fn claim(&self, runner: &Arc<dyn JobRunner>, places: usize) -> Result<Vec<ClaimedJob>> {
        let Some(book) = &self.book else {
            return Ok(Vec::new());
        };
        self.return_lost_claims().await?;
        let id = ClaimId {
            owner: self.owner().await?,
            number: self.claims.last.fetch_add(1, Ordering::Relaxed) + 1,
        };
        let claim = Claim {
            id: id.clone(),
            labels: self.labels(runner),
            places: places as u64,
            per_caller: self.config.per_caller.max(1) as u64,
            now: self.clock.now(),
        };
        let claimed = book.system.claim_jobs(claim).await.map_err(|error| {
            self.claims.lose(id.clone());
            tracing::debug!(%error, "the queue of jobs could not be looked at");
            super::book::unavailable(error)
        })?;
        if self.claims.are_over() && !claimed.is_empty() {
            // They never began, so others may have them.
            self.claims.lose(id);
            return Ok(Vec::new());
        }
        Ok(claimed)
    }

    /// Queues the jobs of claims again whose answer was lost. None of them began.
    pub(super) async fn return_lost_claims(&self) -> Result<()> {
        let lost: Vec<_> = self.claims.lost.lock().clone();
        let Some(book) = self.book.as_ref().filter(|_| !lost.is_empty()) else {
            return Ok(());
        };
        let sent = Instant::now();
        let claims = lost.into_iter().map(|(claim, _)| claim).collect();
        let returned = book
            .system
            .return_claims(claims)
            .await
            .map_err(super::book::unavailable)?;
        if returned > 0 {
            tracing::info!(
                returned,
                "jobs wait again that were claimed and did not begin"
            );
        }
        self.claims.lost.lock().retain(|(_, until)| *until > sent);
        Ok(())
    }

    fn labels(&self, runner: &Arc<dyn JobRunner>) -> Arc<[String]> {
        let revision = runner.revision();
        let mut known = self.claims.labels.lock();
        if let Some((of, labels)) = &*known
            && *of == revision
        {
            return Arc::clone(labels);
        }
        let ring = self.book.as_ref().and_then(|book| book.keyring.clone());
        let packs = Arc::clone(runner).packs();
        let of_key = |key: &str| -> Vec<String> {
            let label = |pack: &crate::call_runner::RunnablePack| {
                sealed_call::label(
                    key,
                    &pack.manifest.name,
                    pack.manifest.version,
                    &pack.contract,
                )
            };
            packs.iter().map(label).collect()
        };
        let labels: Arc<[String]> = ring
            .iter()
            .flat_map(|ring| ring.ids())
            .flat_map(of_key)
            .collect();
        *known = Some((revision, Arc::clone(&labels)));
        labels
    }

    /// Starts a job that was claimed. Returns whether it did.
    async fn start_claimed(
        self: &Arc<Self>,
        claimed: ClaimedJob,
        runner: &Arc<dyn JobRunner>,
    ) -> bool {
        let ClaimedJob {
            row,
            sealed,
            cancelled,
        } = claimed;
        let (owner, again): (Arc<str>, bool) =
            (row.owner.as_str().into(), row.attempt <= row.retries);
        let id = row.id.clone();
        let Some((job, _)) = document::of_row(row) else {
            tracing::warn!(job = id, "the row of a job cannot be read");
            return false;
        };
        let call = self.open_call(&job, sealed, runner).await;
        let identity = call.as_ref().ok().map(|call| Arc::clone(&call.identity));
        let identity = identity.or_else(|| {
            helmdeck_core::Identity::new(&job.tenant, &job.user)
                .ok()
                .map(Arc::new)
        });
        let Some(identity) = identity else {
            tracing::warn!(job = id, "the caller of a job cannot be read");
            return false;
        };
        // The answer may have come late: then others count the job as lost.
        if !self.replica().is_some_and(|replica| replica.holds(&owner)) {
            tracing::warn!(
                job = id,
                "a job is not started: this server was not heard of for too long"
            );
            return false;
        }
        let (clock, changes) = (Arc::clone(&self.clock), Arc::clone(&self.changes));
        let live = Arc::new(Live::new(job, owner, identity, again, clock, changes));
        if cancelled {
            live.stop(StopReason::Wanted);
        }
        {
            let mut table = self.table();
            table.queue.begin(live.caller());
            table.live.insert(live.id.clone(), Arc::clone(&live));
        }
        self.metrics.claimed.inc();
        self.keep();
        self.wake.notify_one();
        self.claims.begun.send_modify(|count| *count += 1);
        self.running
            .spawn(Arc::clone(self).run_claimed(live, call, Arc::clone(runner)));
        true
    }

    async fn open_call(
        &self,
        job: &Job,
        sealed: Vec<u8>,
        runner: &Arc<dyn JobRunner>,
    ) -> Result<Call> {
        let unreadable = || {
            Error::new(
                Code::Internal,
                "the call of this job does not open: its row was changed",
            )
        };
        let ring = self
            .book
            .as_ref()
            .and_then(|book| book.keyring.clone())
            .ok_or_else(unreadable)?;
        let of = job.clone();
        // Opening megabytes takes milliseconds.
        let opening = tokio::task::spawn_blocking(move || sealed_call::open(&ring, &of, &sealed));
        let OpenedCall { mut call, position } =
            opening.await.ok().flatten().ok_or_else(unreadable)?;
        if let Some(position) = position {
            call.behind |= Arc::clone(runner).is_behind(position).await;
        }
        if let Some(correlation) = self.table().accepted(&job.id) {
            call.correlation = correlation;
        }
        Ok(call)
    }

    /// Leaves jobs of this process to others, which run them again; returns those that may not be.
    pub(super) async fn hand_back(&self, live: Vec<Arc<Live>>) -> Vec<Arc<Live>> {
        let (again, once): (Vec<_>, Vec<_>) = live
            .into_iter()
            .partition(|live| live.again && live.stopped() != Some(StopReason::Wanted));
        let (Some(book), Some(first)) = (&self.book, again.first()) else {
            return once;
        };
        let owner = Arc::clone(&first.owner);
        let of_owner = again.iter().filter(|live| live.owner == owner);
        let jobs = of_owner
            .map(|live| (live.id.to_string(), live.revision()))
            .collect();
        let expires_at = self.clock.now().saturating_add(self.config.retention);
        let released = match book.system.release_jobs(owner, jobs, expires_at).await {
            Ok(released) => released,
            Err(error) => {
                tracing::warn!(%error, "jobs could not be left to other servers");
                Vec::new()
            }
        };
        let (left, rest): (Vec<_>, Vec<_>) = again
            .into_iter()
            .partition(|live| released.iter().any(|id| id == live.id.as_str()));
        for live in left {
            self.leave(&live);
            self.metrics.again.inc();
        }
        once.into_iter().chain(rest).collect()
    }

    /// Forgets a job that others run.
    pub(super) fn leave(&self, live: &Arc<Live>) {
        live.leave();
        self.table().remove(live);
    }
}
