//! What the transports ask of jobs: those of this process first, then those of the record.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use helmdeck_core::{Identity, Outcome, Result};

use super::book::{self, CANCEL_WAIT};
use super::document::Kept;
use super::table::Jobs;
use super::{Job, JobEvent, JobId, JobPage, JobQuery, follow};
use crate::engine::Engine;

/// How often the owners of jobs are looked at.
const LOST_EVERY: Duration = Duration::from_secs(2);

impl Engine {
    /// Returns a job. `owner` is who asks; `None` = an operator, who sees the jobs of all.
    ///
    /// # Errors
    /// `not_found` if there is none, or it is somebody else's; `overloaded` if the record is not available.
    pub async fn job(&self, owner: Option<&Identity>, id: &JobId) -> Result<Job> {
        let jobs = &self.0.jobs;
        if let Some(live) = jobs.find(owner, id).await? {
            return Ok((*live.job()).clone());
        }
        match &jobs.book {
            Some(book) => book.job(owner, id).await,
            None => Err(book::unknown(id)),
        }
    }

    /// Lists jobs, the newest first, as [`Engine::job`] would show each.
    ///
    /// # Errors
    /// `overloaded` if the record is not available.
    pub async fn jobs(&self, owner: Option<&Identity>, query: &JobQuery) -> Result<JobPage> {
        let jobs = &self.0.jobs;
        let Some(book) = &jobs.book else { return Ok(cut(jobs.those_here(owner, query, false), query, None)) };
        let page = book.jobs(owner, query).await?;
        // A job may have gone on since its row was written: then it may be in the wrong list, or missing from the right one.
        let mut all = jobs.those_here(owner, query, true);
        all.retain(|job| page.next.as_ref().is_none_or(|last| job.id > *last));
        for job in page.jobs {
            let now = jobs.table().live.get(&job.id).map_or(job, |live| (*live.job()).clone());
            if query.state.is_none_or(|state| now.state == state) && all.iter().all(|other| other.id != now.id) {
                all.push(now);
            }
        }
        all.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        Ok(cut(all, query, page.next))
    }

    /// Returns what a job's call answered: its outcome, or its error.
    ///
    /// # Errors
    /// The call's own error; `cancelled`; `conflict` while it has not ended; `not_found` if there is no such job, or if its result
    /// is not kept, with the reason.
    pub async fn job_outcome(&self, owner: Option<&Identity>, id: &JobId) -> Result<Outcome> {
        let jobs = &self.0.jobs;
        if let Some(live) = jobs.find(owner, id).await? {
            book::refusal(&live.job())?;
            match (live.result(), live.kept()) {
                (Some(outcome), _) => return Ok((*outcome).clone()),
                (None, Kept::Large) => return Err(book::too_large(id)),
                (None, Kept::Memory) => return Err(book::gone(id, "newer results needed its place in memory")),
                (None, Kept::None | Kept::Sealed) => {}
            }
        }
        match &jobs.book {
            Some(book) => book.outcome(owner, id).await,
            None => Err(book::unknown(id)),
        }
    }

    /// Wants a job to end and waits a moment for it; returns the job as it then stands: `cancelled`, or on its way there. One that
    /// has ended stays as it is, so it may be asked twice.
    ///
    /// # Errors
    /// As [`Engine::job`].
    pub async fn cancel_job(&self, owner: Option<&Identity>, id: &JobId) -> Result<Job> {
        let jobs = &self.0.jobs;
        match (jobs.find(owner, id).await?, &jobs.book) {
            (Some(live), _) => {
                if !live.job().state.is_final() {
                    jobs.cancel(&live).await;
                }
                self.wait_for_job(owner, id, CANCEL_WAIT).await
            }
            (None, Some(book)) => book.cancel(owner, id).await,
            (None, None) => Err(book::unknown(id)),
        }
    }

    /// Waits until a job has ended, at most this long, and returns it as it then stands.
    ///
    /// # Errors
    /// As [`Engine::job`].
    pub async fn wait_for_job(&self, owner: Option<&Identity>, id: &JobId, limit: Duration) -> Result<Job> {
        let events = self.follow_job(owner, id, None).await?;
        let ended = async {
            tokio::pin!(events);
            while let Some(event) = events.next().await {
                if event.job.state.is_final() {
                    return Some((*event.job).clone());
                }
            }
            None
        };
        match tokio::time::timeout(limit, ended).await {
            Ok(Some(job)) => Ok(job),
            _ => self.job(owner, id).await,
        }
    }

    /// Follows a job: how it stands now, and then every change of it; the stream ends after the last one.
    ///
    /// With `after`, the number of an event, it goes on after that one: nothing comes twice, and nothing at all if that was the
    /// last. Of a job of this process every report comes, unless the reader is hundreds behind; of another process what is in the
    /// record, about twice a second.
    ///
    /// # Errors
    /// As [`Engine::job`].
    pub async fn follow_job(
        &self,
        owner: Option<&Identity>,
        id: &JobId,
        after: Option<u64>,
    ) -> Result<impl Stream<Item = JobEvent> + Send + 'static + use<>> {
        let jobs = &self.0.jobs;
        let source = match (jobs.find(owner, id).await?, &jobs.book) {
            (Some(live), _) => follow::Source::Live(live),
            (None, Some(book)) => {
                let (job, _) = book.find(owner, id).await?;
                follow::Source::Record(book.clone(), Some(Box::new(job)))
            }
            (None, None) => return Err(book::unknown(id)),
        };
        Ok(follow::events(source, id.clone(), after))
    }

    /// Ends the jobs of processes that are gone, now and every few seconds, until the engine shuts down.
    pub(crate) fn end_lost_jobs_always(&self) {
        let jobs = &self.0.jobs;
        let Some(book) = jobs.book.clone() else { return };
        let lost = jobs.metrics.lost.clone();
        let look = async move {
            loop {
                lost.inc_by(book.end_lost().await);
                tokio::time::sleep(LOST_EVERY).await;
            }
        };
        tokio::spawn(self.0.stop.clone().run_until_cancelled_owned(look));
    }

    /// Starts no job any more: those that wait have failed, to be started again later; those that run go on until
    /// [`Engine::shutdown`].
    pub async fn drain_jobs(&self) {
        self.0.jobs.drain().await;
    }

    /// Waits until no job runs. Only after [`Engine::drain_jobs`].
    pub async fn jobs_ended(&self) {
        self.0.jobs.running.wait().await;
    }
}

impl Jobs {
    /// Returns those of this process that a list is to have, the newest first; with `live` only those that may be newer than their row.
    fn those_here(&self, owner: Option<&Identity>, query: &JobQuery, live: bool) -> Vec<Job> {
        let table = self.table();
        let here = table.live.values().rev().filter(|it| !(live && it.is_settled())).map(|it| it.job()).filter(|job| {
            owner.is_none_or(|owner| job.is_of(owner))
                && query.state.is_none_or(|state| job.state == state)
                && query.after.as_ref().is_none_or(|after| job.id < *after)
        });
        here.map(|job| (*job).clone()).collect()
    }
}

/// Makes a page of jobs, of which `next` says where more are.
fn cut(mut jobs: Vec<Job>, query: &JobQuery, next: Option<JobId>) -> JobPage {
    let more = jobs.len() > query.page();
    jobs.truncate(query.page());
    let next = if more { jobs.last().map(|job| job.id.clone()) } else { next };
    JobPage { jobs, next }
}
