//! A job of this process: its state, events and cancel request.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::context::ProgressSink;
use helmdeck_core::{Clock, Identity, Outcome, Timestamp};
use helmdeck_system::jobs::JobRow;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::document::{self, ResultLocation};
use super::{Job, JobEvent, JobId, JobProgress};
use crate::tail::Tail;

/// Limit of events kept for late or slow readers.
///
/// Each event contains the whole job, so a missed event is only a missed report.
const EVENTS: usize = 256;
/// Limit of a progress message, in bytes. Longer ones are cut.
const MAX_MESSAGE_BYTES: usize = 500;

/// Unit of fairness: tenant and user.
pub(super) type Caller = (String, String);

/// A job of this process.
pub(super) struct Live {
    pub(super) id: JobId,
    /// Id of this replica when the job was stored; empty if it is not. Only under it may the job be
    /// saved.
    pub(super) owner: Arc<str>,
    pub(super) identity: Arc<Identity>,
    /// Whether another process may run its call again if this one ends.
    pub(super) again: bool,
    /// Cancelled to end the call.
    pub(super) cancel: CancellationToken,
    clock: Arc<dyn Clock>,
    /// Changes of all jobs of this process.
    changes: Arc<Tail<Arc<Job>>>,
    inner: Mutex<LiveState>,
    /// The number of the last event.
    last: watch::Sender<u64>,
}

struct LiveState {
    job: Arc<Job>,
    events: VecDeque<JobEvent>,
    stop: Option<StopReason>,
    /// Its end, until it is written: readers learn of it only then.
    ending: Option<Arc<Job>>,
    kept: ResultLocation,
    sealed: Option<Vec<u8>>,
    result: Option<Arc<Outcome>>,
    /// Revision in the database.
    saved: u64,
    /// Whether it is no job of this process any more.
    left: bool,
}

/// Why a call is ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// A caller cancelled it.
    Wanted,
    /// The process ends.
    Shutdown,
    /// Other processes count this one as gone, and have ended the job.
    Lost,
}

/// The result of a job that has ended.
#[derive(Default)]
pub(super) struct JobEnd {
    pub(super) kept: Option<ResultLocation>,
    pub(super) sealed: Option<Vec<u8>>,
    /// Kept here.
    pub(super) memory: Option<Arc<Outcome>>,
}

impl Live {
    pub(super) fn new(
        job: Job,
        owner: Arc<str>,
        identity: Arc<Identity>,
        again: bool,
        clock: Arc<dyn Clock>,
        changes: Arc<Tail<Arc<Job>>>,
    ) -> Self {
        let (id, number, job) = (job.id.clone(), job.revision, Arc::new(job));
        let events = VecDeque::from([JobEvent {
            number,
            job: Arc::clone(&job),
        }]);
        changes.extend([Arc::clone(&job)]);
        let inner = LiveState {
            job,
            events,
            stop: None,
            ending: None,
            kept: ResultLocation::None,
            sealed: None,
            result: None,
            saved: number,
            left: false,
        };
        let (last, cancel) = (watch::Sender::new(number), CancellationToken::new());
        Self {
            id,
            owner,
            identity,
            again,
            cancel,
            clock,
            changes,
            inner: Mutex::new(inner),
            last,
        }
    }

    pub(super) fn caller(&self) -> Caller {
        (
            self.identity.tenant().to_owned(),
            self.identity.user().to_owned(),
        )
    }

    pub(super) fn job(&self) -> Arc<Job> {
        Arc::clone(&self.lock().job)
    }

    /// Changes the job and notifies its followers. A job that is ending does not change any more.
    pub(super) fn change(&self, change: impl FnOnce(&mut Job)) {
        let mut inner = self.lock();
        if inner.ending.is_none() && !inner.left && !inner.job.state.is_final() {
            let mut job = (*inner.job).clone();
            change(&mut job);
            inner.append(job);
            self.changes.extend([Arc::clone(&inner.job)]);
            self.last.send_replace(inner.job.revision);
        }
    }

    /// Requests the end of the call. The first reason counts.
    pub(super) fn stop(&self, why: StopReason) {
        self.lock().stop.get_or_insert(why);
        self.cancel.cancel();
    }

    pub(super) fn stopped(&self) -> Option<StopReason> {
        self.lock().stop
    }

    /// Sets the end of the job without a notification; `false` if it was set before.
    pub(super) fn end(&self, result: JobEnd, change: impl FnOnce(&mut Job)) -> bool {
        let mut inner = self.lock();
        if inner.ending.is_some() || inner.left || inner.job.state.is_final() {
            return false;
        }
        let mut job = (*inner.job).clone();
        change(&mut job);
        job.revision += 1;
        inner.kept = result.kept.unwrap_or(ResultLocation::None);
        job.has_result = matches!(inner.kept, ResultLocation::Sealed | ResultLocation::Memory);
        inner.sealed = result.sealed;
        inner.result = result.memory;
        inner.ending = Some(Arc::new(job));
        true
    }

    /// Leaves the job to other processes: nothing of it is written any more, and followers look at
    /// its row.
    pub(super) fn leave(&self) {
        let mut inner = self.lock();
        inner.left = true;
        self.last.send_replace(inner.job.revision);
    }

    /// Returns whether it is no job of this process any more.
    pub(super) fn has_left(&self) -> bool {
        self.lock().left
    }

    /// Returns the number of its last event.
    pub(super) fn revision(&self) -> u64 {
        self.lock().job.revision
    }

    /// Notifies all followers of the end.
    pub(super) fn notify_end(&self) {
        let mut inner = self.lock();
        if let Some(job) = inner.ending.take() {
            let number = job.revision;
            inner.keep(Arc::clone(&job));
            self.changes.extend([job]);
            self.last.send_replace(number);
        }
    }

    /// Returns the current row with the sealed result, if the stored one is older.
    pub(super) fn unsaved(&self) -> Option<(JobRow, Option<Vec<u8>>)> {
        let inner = self.lock();
        let job = inner.ending.as_ref().unwrap_or(&inner.job);
        let newer = job.revision > inner.saved && !inner.left;
        newer.then(|| {
            (
                document::to_row(job, &self.owner, inner.kept, 0),
                inner.sealed.clone(),
            )
        })
    }

    /// Records that this revision is stored.
    pub(super) fn saved(&self, revision: u64) {
        let mut inner = self.lock();
        inner.saved = inner.saved.max(revision);
        let ended = inner
            .ending
            .as_ref()
            .is_some_and(|job| job.revision <= inner.saved)
            || (inner.job.state.is_final() && inner.job.revision <= inner.saved);
        if ended {
            inner.sealed = None;
        }
    }

    /// Returns whether everything is in the database, so that this process need not keep the job.
    pub(super) fn is_over(&self) -> bool {
        self.is_settled() && self.lock().result.is_none()
    }

    /// Returns whether the job has ended and its end is stored.
    pub(super) fn is_settled(&self) -> bool {
        let inner = self.lock();
        inner.job.state.is_final() && inner.job.revision <= inner.saved
    }

    /// Returns the result kept in memory.
    pub(super) fn result(&self) -> Option<Arc<Outcome>> {
        self.lock().result.clone()
    }

    /// Drops the result kept in memory.
    pub(super) fn drop_result(&self) {
        let mut inner = self.lock();
        if inner.result.take().is_some() {
            let ending = inner.ending.is_some();
            let job = if ending {
                inner.ending.as_mut()
            } else {
                Some(&mut inner.job)
            };
            job.into_iter()
                .for_each(|job| Arc::make_mut(job).has_result = false);
        }
    }

    /// Drops all events but the last, if the job ended this long ago. Its followers have read them.
    pub(super) fn trim(&self, now: Timestamp, after: Duration) {
        let mut inner = self.lock();
        if inner.job.state.is_final()
            && inner
                .job
                .ended_at
                .is_some_and(|ended| now.since(ended) >= after)
        {
            let last = inner.events.pop_back();
            inner.events = last.into_iter().collect();
        }
    }

    pub(super) fn kept(&self) -> ResultLocation {
        self.lock().kept
    }

    /// Returns the events after this number; without a number, the newest one.
    ///
    /// Also returns whether they are the last, and a receiver that is notified of more.
    pub(super) fn events(&self, after: Option<u64>) -> (Vec<JobEvent>, bool, watch::Receiver<u64>) {
        let inner = self.lock();
        let events = match after {
            Some(after) => inner
                .events
                .iter()
                .filter(|event| event.number > after)
                .cloned()
                .collect(),
            None => inner.events.back().cloned().into_iter().collect(),
        };
        (events, inner.job.state.is_final(), self.last.subscribe())
    }

    /// Returns the reports that are kept, oldest first.
    pub(super) fn reports(&self) -> Vec<JobProgress> {
        let mut reports: Vec<JobProgress> = Vec::new();
        for report in self
            .lock()
            .events
            .iter()
            .filter_map(|event| event.job.progress.as_ref())
        {
            if reports.last() != Some(report) {
                reports.push(report.clone());
            }
        }
        reports
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.inner.lock()
    }
}

impl LiveState {
    fn append(&mut self, mut job: Job) {
        job.revision += 1;
        self.keep(Arc::new(job));
    }

    fn keep(&mut self, job: Arc<Job>) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(JobEvent {
            number: job.revision,
            job: Arc::clone(&job),
        });
        self.job = job;
    }
}

impl ProgressSink for Live {
    fn report(&self, percent: Option<f32>, message: &str) {
        let message = message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned();
        let percent = percent
            .filter(|percent| percent.is_finite())
            .map(|percent| percent.clamp(0.0, 100.0));
        let at = self.clock.now();
        self.change(|job| {
            job.progress = Some(JobProgress {
                percent,
                message,
                at,
            })
        });
    }
}
