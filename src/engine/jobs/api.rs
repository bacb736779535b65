//! Queries on jobs, for the transports: the jobs of this process first, then those in the database.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use helmdeck_core::{Identity, Outcome, Result};

use super::book::{self, CANCEL_WAIT};
use super::document::ResultLocation;
use super::table::Jobs;
use super::{Job, JobEvent, JobId, JobPage, JobProgress, JobQuery, follow};

/// Interval of checks for jobs of lost processes.
const LOST_EVERY: Duration = Duration::from_secs(2);

impl Jobs {
    /// Returns a job of `owner`; `None` = an operator, who sees all jobs.
    ///
    /// # Errors
    /// `not_found` if there is none, or it belongs to another caller; `overloaded` if the database
    /// is not available.
    pub(crate) async fn job(&self, owner: Option<&Identity>, id: &JobId) -> Result<Job> {
        if let Some(live) = self.find(owner, id).await? {
            return Ok((*live.job()).clone());
        }
        match &self.book {
            Some(book) => book.job(owner, id).await,
            None => Err(book::unknown(id)),
        }
    }

    /// Returns the progress reports of a job that are kept, oldest first.
    ///
    /// Of a job of this process these are the last 256, until it has ended; else the last one.
    ///
    /// # Errors
    /// As [`Jobs::job`].
    pub(crate) async fn reports(
        &self,
        owner: Option<&Identity>,
        id: &JobId,
    ) -> Result<Vec<JobProgress>> {
        if let Some(live) = self.find(owner, id).await? {
            return Ok(live.reports());
        }
        Ok(self.job(owner, id).await?.progress.into_iter().collect())
    }

    /// Lists jobs, the newest first, as [`Jobs::job`] would show each.
    ///
    /// # Errors
    /// `overloaded` if the database is not available.
    pub(crate) async fn list(&self, owner: Option<&Identity>, query: &JobQuery) -> Result<JobPage> {
        let Some(book) = &self.book else {
            return Ok(cut(self.those_here(owner, query, false), query, None));
        };
        let page = book.jobs(owner, query).await?;
        // A job may have changed since its row was written, so a list by rows may contain it
        // wrongly or miss it.
        let mut all = self.those_here(owner, query, true);
        all.retain(|job| page.next.as_ref().is_none_or(|last| job.id > *last));
        for job in page.jobs {
            let now = self
                .table()
                .live
                .get(&job.id)
                .map_or(job, |live| (*live.job()).clone());
            if query.state.is_none_or(|state| now.state == state)
                && all.iter().all(|other| other.id != now.id)
            {
                all.push(now);
            }
        }
        all.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        Ok(cut(all, query, page.next))
    }

    /// Returns the result of a job: the outcome of its call, or its error.
    ///
    /// # Errors
    /// The call's own error; `cancelled`; `conflict` while it has not ended; `not_found` if the job
    /// does not exist, or if its result is not kept, with the reason.
    pub(crate) async fn outcome(&self, owner: Option<&Identity>, id: &JobId) -> Result<Outcome> {
        if let Some(live) = self.find(owner, id).await? {
            book::refusal(&live.job())?;
            match (live.result(), live.kept()) {
                (Some(outcome), _) => return Ok((*outcome).clone()),
                (None, ResultLocation::Large) => return Err(book::too_large(id)),
                (None, ResultLocation::Memory) => {
                    return Err(book::gone(id, "newer results needed its place in memory"));
                }
                (None, ResultLocation::None | ResultLocation::Sealed) => {}
            }
        }
        match &self.book {
            Some(book) => book.outcome(owner, id).await,
            None => Err(book::unknown(id)),
        }
    }

    /// Cancels a job, waits a moment for its end, and returns its state then.
    ///
    /// The job is `cancelled`, or about to be. A job that has already ended does not change, so
    /// this can be repeated.
    ///
    /// # Errors
    /// As [`Jobs::job`].
    pub(crate) async fn cancel(
        self: &Arc<Self>,
        owner: Option<&Identity>,
        id: &JobId,
    ) -> Result<Job> {
        match (self.find(owner, id).await?, &self.book) {
            (Some(live), _) => {
                if !live.job().state.is_final() {
                    // If this process is lost, nobody runs it again.
                    let durable = match &self.book {
                        Some(book) if live.again => book.ask_to_cancel(id).await,
                        _ => Ok(()),
                    };
                    self.cancel_live(&live).await;
                    durable?;
                }
                self.wait_for(owner, id, CANCEL_WAIT).await
            }
            (None, Some(book)) => book.cancel(owner, id).await,
            (None, None) => Err(book::unknown(id)),
        }
    }

    /// Waits until a job has ended, for at most `limit`, and returns its state then.
    ///
    /// # Errors
    /// As [`Jobs::job`].
    pub(crate) async fn wait_for(
        self: &Arc<Self>,
        owner: Option<&Identity>,
        id: &JobId,
        limit: Duration,
    ) -> Result<Job> {
        let events = self.follow(owner, id, None).await?;
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

    /// Follows a job: its state now, then every change; the stream ends after the last one.
    ///
    /// With `after`, the number of an event, it continues after that one: no event comes twice, and
    /// none if it was the last. Of a job of this process every report comes, unless the reader is
    /// hundreds behind; of another process what is in the database, about twice a second.
    ///
    /// # Errors
    /// As [`Jobs::job`].
    pub(crate) async fn follow(
        self: &Arc<Self>,
        owner: Option<&Identity>,
        id: &JobId,
        after: Option<u64>,
    ) -> Result<impl Stream<Item = JobEvent> + Send + 'static + use<>> {
        let source = match (self.find(owner, id).await?, &self.book) {
            (Some(live), _) => follow::EventSource::Live(live),
            (None, Some(book)) => {
                let (job, _) = book.find(owner, id).await?;
                follow::EventSource::Record(Some(Box::new(job)))
            }
            (None, None) => return Err(book::unknown(id)),
        };
        Ok(follow::events(Arc::clone(self), source, id.clone(), after))
    }

    /// Ends the jobs of lost processes, now and every few seconds, until the engine shuts down.
    pub(crate) fn end_lost_in_background(self: &Arc<Self>) {
        let Some(book) = self.book.clone() else {
            return;
        };
        let jobs = Arc::downgrade(self);
        let look = async move {
            loop {
                let lost = book.end_lost().await;
                let Some(jobs) = jobs.upgrade() else { return };
                jobs.metrics.lost.inc_by(lost.failed);
                jobs.metrics.again.inc_by(lost.queued);
                if lost.queued > 0 {
                    jobs.claims.wake.notify_one();
                }
                drop(jobs);
                tokio::time::sleep(LOST_EVERY).await;
            }
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(look));
    }

    /// Waits until no job runs.
    pub(crate) async fn ended(&self) {
        self.running.wait().await;
    }

    /// Returns the jobs of this process that match a query, newest first.
    ///
    /// With `live`, it returns only those that may be newer than their row.
    fn those_here(&self, owner: Option<&Identity>, query: &JobQuery, live: bool) -> Vec<Job> {
        let table = self.table();
        let here = table
            .live
            .values()
            .rev()
            .filter(|it| !(live && it.is_settled()))
            .map(|it| it.job())
            .filter(|job| {
                owner.is_none_or(|owner| job.is_of(owner))
                    && query.state.is_none_or(|state| job.state == state)
                    && query.after.as_ref().is_none_or(|after| job.id < *after)
            });
        here.map(|job| (*job).clone()).collect()
    }
}

/// Cuts jobs to a page. `next` is the cursor of further rows.
fn cut(mut jobs: Vec<Job>, query: &JobQuery, next: Option<JobId>) -> JobPage {
    let more = jobs.len() > query.page();
    jobs.truncate(query.page());
    let next = if more {
        jobs.last().map(|job| job.id.clone())
    } else {
        next
    };
    JobPage { jobs, next }
}
