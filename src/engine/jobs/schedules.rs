//! Jobs that packs with a schedule start by themselves: one for each due time, whichever process is
//! first.

use std::sync::Arc;

use helmdeck_core::{Call, Code, Error, Result, Timestamp};
use helmdeck_system::schedules::{DueRun, Scheduled};

use super::document::{self, ResultLocation};
use super::run::seal_call;
use super::table::Jobs;
use super::{Job, JobError, JobId, JobSchedule, RunPlan, book};
use crate::call_runner::JobRunner;

impl Jobs {
    /// Takes a due time of a pack, and queues its run as the job `id`. A due time that was taken,
    /// or is skipped, is no error.
    ///
    /// # Errors
    /// `overloaded` if the database is not available, or this process is about to end; then another
    /// try with the same id may succeed, or find that this one has.
    pub(crate) async fn run_due(
        self: &Arc<Self>,
        mut call: Call,
        plan: RunPlan,
        due_at: Timestamp,
        id: JobId,
        runner: &Arc<dyn JobRunner>,
    ) -> Result<()> {
        let Some(book) = &self.book else {
            return Err(Error::new(
                Code::Internal,
                "schedules need a system database",
            ));
        };
        call.version = Some(plan.version);
        let job = Job {
            id,
            ..self.new_job(&call, &plan, Some(JobSchedule { due_at }))
        };
        let ring = self.portable(&call, &plan);
        let (owner, sealed) = match &ring {
            Some(ring) => {
                self.table().admit()?;
                (
                    "".into(),
                    Some(seal_call(Arc::clone(ring), &call, &plan, &job, runner.position()).await?),
                )
            }
            None => {
                self.table().reserve()?;
                (
                    self.owner()
                        .await
                        .inspect_err(|_| self.table().queue.release())?,
                    None,
                )
            }
        };
        let row = document::to_row(&job, &owner, ResultLocation::None, plan.retries);
        let due = DueRun {
            pack: job.pack.to_string(),
            due_at,
            row,
            call: sealed,
            limits: self.limits(),
            unclaimed: JobError::unclaimed().to_document(),
        };
        let became = book
            .system
            .run_schedule(due)
            .await
            .map_err(book::unavailable);
        if ring.is_none() && !matches!(became, Ok(Scheduled::Added)) {
            self.table().queue.release();
        }
        let pack = job.pack.clone();
        match became? {
            Scheduled::First | Scheduled::Taken => {}
            Scheduled::Added => {
                self.metrics.scheduled("started");
                if ring.is_some() {
                    self.changes.extend([Arc::new(job)]);
                    self.claims.wake.notify_one();
                } else {
                    let live = self.live(job, owner, &call.identity);
                    self.wait_here(&live, call, runner).await;
                }
            }
            Scheduled::StillRunning => {
                self.metrics.scheduled("skipped");
                tracing::warn!(%pack, "a scheduled run is skipped: the last one has not ended");
            }
            Scheduled::Refused => {
                self.metrics.scheduled("refused");
                tracing::warn!(%pack, "a scheduled run is skipped: too many jobs have not ended");
            }
        }
        Ok(())
    }

    /// Counts a due time whose run was refused before it became a job.
    pub(crate) fn refused_due(&self) {
        self.metrics.scheduled("refused");
    }
}
