//! The life of a job in this process: submitted, queued, run, ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use helmdeck_core::{Call, Code, Error, Identity, Outcome, Result, Version};
use helmdeck_memory::{DeletePosition, KeyRing, StoreError};
use helmdeck_system::jobs::EndedJob;
use helmdeck_system::queue::{Accepted, JobLimits, QueuedCall};

use super::document::{self, ResultLocation};
use super::live::{JobEnd, Live, StopReason};
use super::table::{Jobs, Waiting, full};
use super::{Job, JobError, JobId, JobSchedule, JobState, sealed_call};
use crate::call_runner::JobRunner;

/// Retry time for a caller whose job found no place.
pub(super) const COME_BACK: Duration = Duration::from_secs(5);
/// Time limit for a cancelled call to end.
const GRACE: Duration = Duration::from_secs(10);
/// How long the end of a job waits for the database before followers are notified anyway.
const SAVE_FOR: Duration = Duration::from_secs(5);

/// How a job runs.
#[derive(Debug, Clone)]
pub(crate) struct RunPlan {
    /// The version of its pack.
    pub(crate) version: Version,
    /// Digest of what the pack's runs depend on besides the input.
    pub(crate) contract: [u8; 32],
    /// How often it is run again if its process is lost.
    pub(crate) retries: u32,
    /// Whether it needs something of this process, such as a session.
    pub(crate) bound: bool,
}

impl Jobs {
    /// Queues a call, whose input and credentials were checked, and returns its job. `runner` runs
    /// it.
    ///
    /// # Errors
    /// `overloaded` if too many jobs wait, or if the server is about to stop: then nothing was
    /// done. Also if the job cannot be written to the database: then it may have been, and its
    /// caller finds it among its jobs.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        mut call: Call,
        plan: RunPlan,
        runner: Arc<dyn JobRunner>,
    ) -> Result<Job> {
        // The job runs the version that was requested, even if another one arrives in the meantime.
        call.version = Some(plan.version);
        (call.deadline, call.cancel, call.progress) = (None, None, None);
        let jobs = Arc::clone(self);
        // A separate task: if the caller disconnects halfway, there is a job or none, never a row
        // without a job.
        let task = tokio::spawn(async move {
            match jobs.portable(&call, &plan) {
                Some(ring) => jobs.queue(call, &plan, ring, &runner).await,
                None => jobs.admit(call, &plan, runner).await,
            }
        });
        task.await.map_err(|error| {
            Error::new(Code::Internal, "the job could not be queued").with_source(error)
        })?
    }

    /// Returns the keys that seal a call for any process; `None` if it can only run in this one.
    pub(super) fn portable(&self, call: &Call, plan: &RunPlan) -> Option<Arc<KeyRing>> {
        let portable = self.claims.are_on()
            && !plan.bound
            && call.depth == 0
            && call.stage.called_by.is_none();
        self.book.as_ref().filter(|_| portable)?.keyring.clone()
    }

    /// Puts a job into the queue that replicas share.
    async fn queue(
        self: &Arc<Self>,
        call: Call,
        plan: &RunPlan,
        ring: Arc<KeyRing>,
        runner: &Arc<dyn JobRunner>,
    ) -> Result<Job> {
        let queued = self.try_queue(call, plan, ring, runner).await;
        queued.inspect_err(|_| {
            self.metrics.refused.inc();
        })
    }

    async fn try_queue(
        self: &Arc<Self>,
        call: Call,
        plan: &RunPlan,
        ring: Arc<KeyRing>,
        runner: &Arc<dyn JobRunner>,
    ) -> Result<Job> {
        self.table().admit()?;
        let Some(book) = &self.book else {
            return Err(full());
        };
        let job = self.new_job(&call, plan, None);
        let row = document::to_row(&job, "", ResultLocation::None, plan.retries);
        let sealed = seal_call(ring, &call, plan, &job, runner.position()).await?;
        let limits = self.limits();
        match book
            .system
            .queue_job(row, sealed, limits)
            .await
            .map_err(unsure)?
        {
            Accepted::Added => {}
            Accepted::CallerFull => return Err(caller_full(limits.of_caller)),
            Accepted::QueueFull => return Err(full()),
        }
        self.changes.extend([Arc::new(job.clone())]);
        self.table().accept(job.id.clone(), call.correlation);
        self.claims.wake.notify_one();
        Ok(job)
    }

    pub(super) fn limits(&self) -> JobLimits {
        JobLimits {
            of_caller: self.config.kept_per_caller,
            waiting: self.config.queue.max(1) as u64,
        }
    }

    async fn admit(
        self: &Arc<Self>,
        call: Call,
        plan: &RunPlan,
        runner: Arc<dyn JobRunner>,
    ) -> Result<Job> {
        self.table().reserve().inspect_err(|_| {
            self.metrics.refused.inc();
        })?;
        let live = match self.write_down(&call, plan).await {
            Ok(live) => live,
            Err(error) => {
                self.table().queue.release();
                self.metrics.refused.inc();
                return Err(error);
            }
        };
        self.wait_here(&live, call, &runner).await;
        Ok((*live.job()).clone())
    }

    /// Lets a job that was written wait in this process, in a reserved place.
    pub(super) async fn wait_here(
        self: &Arc<Self>,
        live: &Arc<Live>,
        call: Call,
        runner: &Arc<dyn JobRunner>,
    ) {
        let late = {
            let mut table = self.table();
            table.live.insert(live.id.clone(), Arc::clone(live));
            if table.stopping {
                table.queue.release();
            } else {
                table.queue.push(live.caller(), (Arc::clone(live), call));
            }
            table.stopping
        };
        self.keep();
        self.wake.notify_one();
        if late {
            self.end(live, Err(stopped())).await;
        }
        self.dispatch(runner);
    }

    /// Makes a new job of a call.
    pub(super) fn new_job(
        &self,
        call: &Call,
        plan: &RunPlan,
        schedule: Option<JobSchedule>,
    ) -> Job {
        let now = self.clock.now();
        Job {
            id: JobId::next(now),
            pack: call.pack.clone(),
            version: plan.version,
            tenant: call.identity.tenant().to_owned(),
            user: call.identity.user().to_owned(),
            state: JobState::Queued,
            progress: None,
            created_at: now,
            started_at: None,
            ended_at: None,
            expires_at: now.saturating_add(self.config.retention),
            error: None,
            has_result: false,
            artifacts: Vec::new(),
            attempt: (plan.retries > 0).then_some(1),
            schedule,
            revision: 1,
        }
    }

    async fn write_down(&self, call: &Call, plan: &RunPlan) -> Result<Arc<Live>> {
        let job = self.new_job(call, plan, None);
        let limit = self.config.kept_per_caller;
        let owner = self.owner().await?;
        let added = match &self.book {
            Some(book) => {
                let row = document::to_row(&job, &owner, ResultLocation::None, plan.retries);
                book.system.add_job(row, limit).await.map_err(unsure)?
            }
            None => self.make_room(&call.identity, limit),
        };
        if !added {
            return Err(caller_full(limit));
        }
        Ok(self.live(job, owner, &call.identity))
    }

    /// Makes a job of this process alone.
    pub(super) fn live(&self, job: Job, owner: Arc<str>, identity: &Arc<Identity>) -> Arc<Live> {
        let (clock, changes) = (Arc::clone(&self.clock), Arc::clone(&self.changes));
        Arc::new(Live::new(
            job,
            owner,
            Arc::clone(identity),
            false,
            clock,
            changes,
        ))
    }

    /// Starts all jobs that may run now.
    pub(super) fn dispatch(self: &Arc<Self>, runner: &Arc<dyn JobRunner>) {
        loop {
            let Some(next) = self.table().queue.next() else {
                break;
            };
            self.running
                .spawn(Arc::clone(self).run_job(next, Arc::clone(runner)));
        }
        self.show();
    }

    async fn run_job(self: Arc<Self>, (live, call): Waiting, runner: Arc<dyn JobRunner>) {
        let now = self.clock.now();
        live.change(|job| (job.state, job.started_at) = (JobState::Running, Some(now)));
        self.wake.notify_one();
        self.run_claimed(live, Ok(call), runner).await;
    }

    /// Runs a job that is in the state `running`, if its call could be read.
    pub(super) async fn run_claimed(
        self: Arc<Self>,
        live: Arc<Live>,
        call: Result<Call>,
        runner: Arc<dyn JobRunner>,
    ) {
        self.metrics
            .waited
            .observe(self.clock.now().since(live.job().created_at).as_secs_f64());
        let answer = match call {
            Ok(mut call) => {
                call.progress = Some(Arc::clone(&live) as _);
                call.cancel = Some(live.cancel.clone());
                let correlation = call.correlation.clone();
                let answering = correlation.scope(answer(&live, call, Arc::clone(&runner)));
                let answer = AssertUnwindSafe(answering).catch_unwind().await;
                answer.unwrap_or_else(|_| {
                    Err(Error::new(
                        Code::Internal,
                        "the job ended without an answer",
                    ))
                })
            }
            Err(error) => Err(error),
        };
        self.end(&live, answer).await;
        self.table().queue.ended(&live.caller());
        self.dispatch(&runner);
        self.claims.wake.notify_one();
    }

    /// Requests the end of a job of this process. A waiting job ends at once.
    pub(super) async fn cancel_live(&self, live: &Arc<Live>) {
        live.stop(StopReason::Wanted);
        let waiting = self
            .table()
            .queue
            .remove(&live.caller(), |(other, _)| Arc::ptr_eq(other, live));
        if waiting.is_some() {
            self.end(
                live,
                Err(Error::new(Code::Cancelled, "the job was cancelled")),
            )
            .await;
            self.show();
        }
    }

    /// Starts no more jobs and ends those that wait in this process. Running jobs continue.
    pub(crate) async fn drain(&self) {
        self.claims.end();
        let _ = tokio::time::timeout(SAVE_FOR, self.claims.settle()).await;
        let _ = tokio::time::timeout(SAVE_FOR, self.return_lost_claims()).await;
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
            if live.again {
                // Another process may run it by now.
                self.leave(live);
                continue;
            }
            self.table()
                .queue
                .remove(&live.caller(), |(other, _)| Arc::ptr_eq(other, live));
            let ended = live.end(JobEnd::default(), |job| {
                (job.state, job.error) = (JobState::Failed, Some(JobError::stopped()));
                job.ended_at = Some(now);
                job.expires_at = now.saturating_add(self.config.retention);
            });
            if ended {
                self.metrics.ended(JobState::Failed);
                live.notify_end();
            }
            self.table().remove(live);
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
        if tokio::time::timeout(GRACE + SAVE_FOR, self.running.wait())
            .await
            .is_err()
        {
            self.end_all(&live).await;
        }
        self.save_all().await;
    }

    /// Ends jobs that no longer run in this process, in one write. Those that may run again are
    /// left to others.
    async fn end_all(&self, live: &[Arc<Live>]) {
        let unfinished = live
            .iter()
            .filter(|live| !live.job().state.is_final())
            .cloned()
            .collect();
        let live = self.hand_back(unfinished).await;
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

    /// Writes jobs that end. If that takes too long, their ends are in the journal, and are written
    /// from there.
    async fn save_soon(&self, live: &[Arc<Live>]) {
        let saving = async {
            while !self.save(live).await {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let saved = tokio::time::timeout(SAVE_FOR, saving).await;
        let (Err(_), Some(book)) = (saved, &self.book) else {
            return;
        };
        for (row, sealed) in live.iter().filter_map(|live| live.unsaved()) {
            book.system.end_job_later(EndedJob { row, sealed }).await;
        }
    }

    /// Ends a job with the result of its call: first it is stored, then followers are notified.
    async fn end(&self, live: &Arc<Live>, answer: Result<Outcome>) {
        if answer.is_err()
            && live.stopped() == Some(StopReason::Shutdown)
            && self.hand_back(vec![Arc::clone(live)]).await.is_empty()
        {
            return;
        }
        let now = self.clock.now();
        let (state, error) = match (&answer, live.stopped()) {
            // The work was done, even if a cancel was requested.
            (Ok(_), _) => (JobState::Succeeded, None),
            (Err(_), Some(StopReason::Wanted)) => (JobState::Cancelled, None),
            (Err(_), Some(StopReason::Shutdown | StopReason::Lost)) => {
                (JobState::Failed, Some(JobError::stopped()))
            }
            (Err(error), None) => (JobState::Failed, Some(JobError::of(error))),
        };
        let artifacts = answer
            .as_ref()
            .map(|outcome| outcome.artifacts.to_vec())
            .unwrap_or_default();
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
            self.table().keep_result(
                &live.id,
                size,
                self.config.memory_bytes,
                self.book.is_some(),
            );
        }
        live.notify_end();
        self.wake.notify_one();
    }

    async fn keep_result(&self, live: &Live, outcome: Outcome) -> JobEnd {
        let size = outcome.output.bytes().len();
        if size as u64 > self.config.max_result_bytes {
            return JobEnd {
                kept: Some(ResultLocation::Large),
                ..JobEnd::default()
            };
        }
        if let Some(ring) = self.book.as_ref().and_then(|book| book.keyring.clone()) {
            let (identity, id, plain) = (
                Arc::clone(&live.identity),
                live.id.clone(),
                document::write(&outcome),
            );
            // Sealing megabytes takes milliseconds.
            let sealing =
                tokio::task::spawn_blocking(move || document::seal(&ring, &identity, &id, &plain));
            if let Ok(Some(sealed)) = sealing.await {
                return JobEnd {
                    kept: Some(ResultLocation::Sealed),
                    sealed: Some(sealed),
                    memory: None,
                };
            }
        }
        JobEnd {
            kept: Some(ResultLocation::Memory),
            sealed: None,
            memory: Some(Arc::new(outcome)),
        }
    }

    /// Makes room among the jobs of a caller that are only in this process.
    ///
    /// Returns `false` if none of them has ended.
    fn make_room(&self, identity: &Identity, limit: u64) -> bool {
        let mut table = self.table();
        let theirs: Vec<_> = table
            .live
            .values()
            .map(|live| live.job())
            .filter(|job| job.is_of(identity))
            .collect();
        if (theirs.len() as u64) < limit {
            return true;
        }
        let Some(oldest) = theirs.iter().find(|job| job.state.is_final()) else {
            return false;
        };
        table.live.remove(&oldest.id);
        true
    }
}

/// Runs the call of a job until it answers or is cancelled.
async fn answer(live: &Live, call: Call, runner: Arc<dyn JobRunner>) -> Result<Outcome> {
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

/// Seals a call for a job.
pub(super) async fn seal_call(
    ring: Arc<KeyRing>,
    call: &Call,
    plan: &RunPlan,
    job: &Job,
    position: Option<DeletePosition>,
) -> Result<QueuedCall> {
    let label = sealed_call::label(ring.current_id(), &job.pack, plan.version, &plan.contract);
    let (identity, id) = (Arc::clone(&call.identity), job.id.clone());
    let plain = sealed_call::write(call, plan.version, position.as_ref());
    // Sealing megabytes takes milliseconds.
    let sealing =
        tokio::task::spawn_blocking(move || sealed_call::seal(&ring, &identity, &id, &plain));
    let sealed = sealing.await.ok().flatten();
    let sealed = sealed
        .ok_or_else(|| Error::new(Code::Internal, "the call of the job could not be sealed"))?;
    Ok(QueuedCall { label, sealed })
}

/// Error for a job whose row was not confirmed.
fn unsure(error: StoreError) -> Error {
    let code = if error.is_temporary() {
        Code::Overloaded
    } else {
        Code::Internal
    };
    let message = "the record of jobs is not available; the job may have been accepted, so look among your jobs first";
    Error::new(code, message).with_source(error)
}

fn caller_full(limit: u64) -> Error {
    let message = format!("{limit} jobs of yours have not ended; wait for one, or cancel one");
    Error::new(Code::Overloaded, message).with_retry_after(COME_BACK)
}

fn stopped() -> Error {
    JobError::stopped().to_error()
}
