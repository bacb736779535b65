//! The life of a job in this process: submitted, queued, run, ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use helmdeck_core::{Call, Code, Error, Identity, Outcome, Result, Version};

use super::document::{self, ResultLocation};
use super::live::{JobEnd, Live, StopReason};
use super::table::{Jobs, Waiting};
use super::{Job, JobError, JobId, JobState, book};
use crate::call_runner::CallRunner;

/// Retry time for a caller whose job found no place.
pub(super) const COME_BACK: Duration = Duration::from_secs(5);
/// Time limit for a cancelled call to end.
const GRACE: Duration = Duration::from_secs(10);
/// How long the end of a job waits for the database before followers are notified anyway.
const SAVE_FOR: Duration = Duration::from_secs(5);

impl Jobs {
    /// Queues a call, whose input and credentials were checked, and returns its job. `runner` runs it.
    ///
    /// # Errors
    /// `overloaded` if too many jobs wait, if the server is about to stop, or if the job cannot be written to the
    /// database. Then nothing was done.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        mut call: Call,
        version: Version,
        runner: Arc<dyn CallRunner>,
    ) -> Result<Job> {
        // The job runs the version that was requested, even if another one arrives in the meantime.
        call.version = Some(version);
        (call.deadline, call.cancel, call.progress) = (None, None, None);
        let jobs = Arc::clone(self);
        // A separate task: if the caller disconnects halfway, there is a job or none, never a row without a job.
        let task = tokio::spawn(async move { jobs.admit(call, version, runner).await });
        task.await.map_err(|error| Error::new(Code::Internal, "the job could not be queued").with_source(error))?
    }

    async fn admit(self: &Arc<Self>, call: Call, version: Version, runner: Arc<dyn CallRunner>) -> Result<Job> {
        self.table().reserve().inspect_err(|_| {
            self.metrics.refused.inc();
        })?;
        let live = match self.write_down(&call, version).await {
            Ok(live) => live,
            Err(error) => {
                self.table().queue.release();
                self.metrics.refused.inc();
                return Err(error);
            }
        };
        let late = {
            let mut table = self.table();
            table.live.insert(live.id.clone(), Arc::clone(&live));
            if table.stopping {
                table.queue.release();
            } else {
                table.queue.push(live.caller(), (Arc::clone(&live), call));
            }
            table.stopping
        };
        self.keep();
        self.wake.notify_one();
        if late {
            self.end(&live, Err(stopped())).await;
        }
        let job = live.job();
        self.dispatch(&runner);
        Ok((*job).clone())
    }

    async fn write_down(&self, call: &Call, version: Version) -> Result<Arc<Live>> {
        let now = self.clock.now();
        let identity = Arc::clone(&call.identity);
        let job = Job {
            id: JobId::next(now),
            pack: call.pack.clone(),
            version,
            tenant: identity.tenant().to_owned(),
            user: identity.user().to_owned(),
            state: JobState::Queued,
            progress: None,
            created_at: now,
            started_at: None,
            ended_at: None,
            expires_at: now.saturating_add(self.config.retention),
            error: None,
            has_result: false,
            artifacts: Vec::new(),
            revision: 1,
        };
        let limit = self.config.kept_per_caller;
        let owner = self.owner().await?;
        let added = match &self.book {
            Some(book) => {
                let row = document::to_row(&job, &owner, ResultLocation::None);
                book.system.add_job(row, limit).await.map_err(book::unavailable)?
            }
            None => self.make_room(&identity, limit),
        };
        if !added {
            let message = format!("{limit} jobs of yours have not ended; wait for one, or cancel one");
            return Err(Error::new(Code::Overloaded, message).with_retry_after(COME_BACK));
        }
        let (clock, changes) = (Arc::clone(&self.clock), Arc::clone(&self.changes));
        Ok(Arc::new(Live::new(job, owner, identity, clock, changes)))
    }

    /// Starts all jobs that may run now.
    fn dispatch(self: &Arc<Self>, runner: &Arc<dyn CallRunner>) {
        loop {
            let Some(next) = self.table().queue.next() else { break };
            self.running.spawn(Arc::clone(self).run_job(next, Arc::clone(runner)));
        }
        self.show();
    }

    async fn run_job(self: Arc<Self>, (live, mut call): Waiting, runner: Arc<dyn CallRunner>) {
        let now = self.clock.now();
        live.change(|job| (job.state, job.started_at) = (JobState::Running, Some(now)));
        self.wake.notify_one();
        self.metrics.waited.observe(now.since(live.job().created_at).as_secs_f64());
        call.progress = Some(Arc::clone(&live) as _);
        call.cancel = Some(live.cancel.clone());
        let correlation = call.correlation.clone();
        let answering = correlation.scope(answer(&live, call, Arc::clone(&runner)));
        let answer = AssertUnwindSafe(answering).catch_unwind().await;
        let answer = answer.unwrap_or_else(|_| Err(Error::new(Code::Internal, "the job ended without an answer")));
        self.end(&live, answer).await;
        self.table().queue.ended(&live.caller());
        self.dispatch(&runner);
    }

    /// Requests the end of a job of this process. A waiting job ends at once.
    pub(super) async fn cancel_live(&self, live: &Arc<Live>) {
        live.stop(StopReason::Wanted);
        let waiting = self.table().queue.remove(&live.caller(), |(other, _)| Arc::ptr_eq(other, live));
        if waiting.is_some() {
            self.end(live, Err(Error::new(Code::Cancelled, "the job was cancelled"))).await;
            self.show();
        }
    }

    /// Starts no more jobs and ends waiting ones. Running jobs continue.
    pub(crate) async fn drain(&self) {
        let waiting = {
            let mut table = self.table();
            table.stopping = true;
            table.queue.drain()
        };
        let waiting: Vec<_> = waiting.into_iter().map(|(live, _)| live).collect();
        self.end_all(&waiting).await;
        self.running.close();
        self.show();
    }

    /// Gives up jobs that this process may no longer save: other processes have ended them.
    ///
    /// Their calls are cancelled, and further questions are answered from the database.
    pub(super) fn give_up(&self, lost: &[Arc<Live>]) {
        let now = self.clock.now();
        for live in lost {
            live.stop(StopReason::Lost);
            self.table().queue.remove(&live.caller(), |(other, _)| Arc::ptr_eq(other, live));
            let ended = live.end(JobEnd::default(), |job| {
                (job.state, job.error) = (JobState::Failed, Some(JobError::stopped()));
                job.ended_at = Some(now);
                job.expires_at = now.saturating_add(self.config.retention);
            });
            if ended {
                self.metrics.ended(JobState::Failed);
                live.notify_end();
            }
            self.table().live.remove(&live.id);
        }
        self.show();
    }

    /// Ends all jobs, within a time limit.
    pub(crate) async fn shutdown(&self) {
        self.drain().await;
        let live: Vec<_> = self.table().live.values().cloned().collect();
        for live in &live {
            if !live.job().state.is_final() {
                live.stop(StopReason::Shutdown);
            }
        }
        if tokio::time::timeout(GRACE + SAVE_FOR, self.running.wait()).await.is_err() {
            self.end_all(&live).await;
        }
        self.save_all().await;
    }

    /// Ends jobs that no longer run in this process, in one write.
    async fn end_all(&self, live: &[Arc<Live>]) {
        let now = self.clock.now();
        let ended: Vec<_> = live
            .iter()
            .filter(|live| {
                live.end(JobEnd::default(), |job| {
                    (job.state, job.error) = (JobState::Failed, Some(JobError::stopped()));
                    job.ended_at = Some(now);
                    job.expires_at = now.saturating_add(self.config.retention);
                })
            })
            .cloned()
            .collect();
        self.save_soon(&ended).await;
        for live in ended {
            self.metrics.ended(JobState::Failed);
            live.notify_end();
        }
    }

    /// Writes jobs. If that takes too long, the keeper continues.
    async fn save_soon(&self, live: &[Arc<Live>]) {
        let saving = async {
            while !self.save(live).await {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let _ = tokio::time::timeout(SAVE_FOR, saving).await;
    }

    /// Ends a job with the result of its call: first it is stored, then followers are notified.
    async fn end(&self, live: &Arc<Live>, answer: Result<Outcome>) {
        let now = self.clock.now();
        let (state, error) = match (&answer, live.stopped()) {
            // The work was done, even if a cancel was requested.
            (Ok(_), _) => (JobState::Succeeded, None),
            (Err(_), Some(StopReason::Wanted)) => (JobState::Cancelled, None),
            (Err(_), Some(StopReason::Shutdown | StopReason::Lost)) => (JobState::Failed, Some(JobError::stopped())),
            (Err(error), None) => (JobState::Failed, Some(JobError::of(error))),
        };
        let artifacts = answer.as_ref().map(|outcome| outcome.artifacts.to_vec()).unwrap_or_default();
        let result = match answer {
            Ok(outcome) => self.keep_result(live, outcome).await,
            Err(_) => JobEnd::default(),
        };
        let in_memory = result.memory.as_ref().map(|outcome| footprint(outcome));
        let ended = live.end(result, |job| {
            (job.state, job.error, job.artifacts) = (state, error, artifacts);
            job.ended_at = Some(now);
            job.expires_at = now.saturating_add(self.config.retention);
        });
        if !ended {
            return;
        }
        self.metrics.ended(state);
        self.save_soon(&[Arc::clone(live)]).await;
        if let Some(size) = in_memory {
            self.table().keep_result(&live.id, size, self.config.memory_bytes, self.book.is_some());
        }
        live.notify_end();
        self.wake.notify_one();
    }

    async fn keep_result(&self, live: &Live, outcome: Outcome) -> JobEnd {
        let size = outcome.output.bytes().len();
        if size as u64 > self.config.max_result_bytes {
            return JobEnd { kept: Some(ResultLocation::Large), ..JobEnd::default() };
        }
        if let Some(ring) = self.book.as_ref().and_then(|book| book.keyring.clone()) {
            let (identity, id, plain) = (Arc::clone(&live.identity), live.id.clone(), document::write(&outcome));
            // Sealing megabytes takes milliseconds.
            let sealing = tokio::task::spawn_blocking(move || document::seal(&ring, &identity, &id, &plain));
            if let Ok(Some(sealed)) = sealing.await {
                return JobEnd { kept: Some(ResultLocation::Sealed), sealed: Some(sealed), memory: None };
            }
        }
        JobEnd { kept: Some(ResultLocation::Memory), sealed: None, memory: Some(Arc::new(outcome)) }
    }

    /// Makes room among the jobs of a caller that are only in this process.
    ///
    /// Returns `false` if none of them has ended.
    fn make_room(&self, identity: &Identity, limit: u64) -> bool {
        let mut table = self.table();
        let theirs: Vec<_> = table.live.values().map(|live| live.job()).filter(|job| job.is_of(identity)).collect();
        if (theirs.len() as u64) < limit {
            return true;
        }
        let Some(oldest) = theirs.iter().find(|job| job.state.is_final()) else { return false };
        table.live.remove(&oldest.id);
        true
    }
}

/// Runs the call of a job until it answers or is cancelled.
async fn answer(live: &Live, call: Call, runner: Arc<dyn CallRunner>) -> Result<Outcome> {
    let cancelled = || Error::new(Code::Cancelled, "the job was cancelled");
    if live.cancel.is_cancelled() {
        return Err(cancelled());
    }
    let mut running = runner.run_call(call);
    tokio::select! {
        biased;
        answer = &mut running => answer,
        // The call has the same token, and may have to clean up.
        () = live.cancel.cancelled() => tokio::time::timeout(GRACE, running).await.unwrap_or_else(|_| Err(cancelled())),
    }
}

/// Approximate memory of a job with its result: the job, its last event and the outcome.
fn footprint(outcome: &Outcome) -> usize {
    outcome.output.bytes().len() + 2048 + 512 * outcome.artifacts.len()
}

fn stopped() -> Error {
    JobError::stopped().to_error()
}
