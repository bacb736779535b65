//! The jobs of all processes in the system database. Any process can read, follow and cancel them.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, Code, Error, Identity, Outcome, Result};
use helmdeck_memory::{KeyRing, StoreError};
use helmdeck_system::System;
use helmdeck_system::jobs::{JobFilter, JobRow, LostErrors, LostJobs};

use super::document::{self, ResultLocation};
use super::{Job, JobError, JobId, JobPage, JobQuery, JobState};

/// Interval of reads of a job of another process.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a cancel waits for the end of the job.
pub(super) const CANCEL_WAIT: Duration = Duration::from_secs(3);

/// The stored jobs. They can be read without an engine.
///
/// A command line can read them next to a running server, or without one. `owner` is the caller
/// whose jobs are visible; `None` = an operator, who sees all. Jobs of other callers are not found.
#[derive(Clone)]
pub struct JobBook {
    pub(super) system: System,
    pub(super) keyring: Option<Arc<KeyRing>>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long jobs are kept after their end.
    pub(super) retention: Duration,
}

helmdeck_core::redacted_debug!(JobBook);

impl JobBook {
    /// Opens the stored jobs, without reading or writing anything yet.
    ///
    /// `keyring` opens results; `retention` is for jobs of lost processes.
    #[must_use]
    pub fn new(
        system: System,
        keyring: Option<Arc<KeyRing>>,
        clock: Arc<dyn Clock>,
        retention: Duration,
    ) -> Self {
        Self {
            system,
            keyring,
            clock,
            retention,
        }
    }

    /// Returns a job.
    ///
    /// # Errors
    /// `not_found`; `internal` if its row cannot be read; `overloaded` if the database is not
    /// available.
    pub async fn job(&self, owner: Option<&Identity>, id: &JobId) -> Result<Job> {
        Ok(self.find(owner, id).await?.0)
    }

    /// Lists jobs, newest first. Unreadable rows are skipped.
    ///
    /// # Errors
    /// `overloaded` if the database is not available.
    pub async fn jobs(&self, owner: Option<&Identity>, query: &JobQuery) -> Result<JobPage> {
        self.end_lost().await;
        let filter = JobFilter {
            caller: owner.map(|owner| (owner.tenant().to_owned(), owner.user().to_owned())),
            state: query.state.map(|state| state.as_str().to_owned()),
            before: query.after.as_ref().map(JobId::to_string),
        };
        if owner.is_some_and(Identity::is_anonymous) {
            return Ok(JobPage {
                jobs: Vec::new(),
                next: None,
            });
        }
        let limit = query.page();
        let mut rows = self
            .system
            .jobs(filter, limit + 1, self.clock.now())
            .await
            .map_err(unavailable)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().map(|row| row.id.clone());
        let jobs = rows
            .into_iter()
            .filter_map(|row| read(row).ok())
            .map(|(job, _)| job)
            .collect();
        Ok(JobPage {
            jobs,
            next: last.filter(|_| more).and_then(|id| JobId::parse(&id).ok()),
        })
    }

    /// Returns the result of a job: the outcome of its call, or its error.
    ///
    /// # Errors
    /// The call's own error; `cancelled`; `conflict` while it has not ended; `not_found` if the job
    /// does not exist, or if its result is not kept, with the reason.
    pub async fn outcome(&self, owner: Option<&Identity>, id: &JobId) -> Result<Outcome> {
        let (job, kept) = self.find(owner, id).await?;
        refusal(&job)?;
        match (kept, &self.keyring) {
            (ResultLocation::Sealed, Some(ring)) => {
                let sealed = self
                    .system
                    .job_result(id.as_str())
                    .await
                    .map_err(unavailable)?;
                let ring = Arc::clone(ring);
                // Opening megabytes takes milliseconds.
                let opening =
                    tokio::task::spawn_blocking(move || document::open(&ring, &job, &sealed?))
                        .await;
                opening.ok().flatten().ok_or_else(|| {
                    gone(id, "it does not open: it was sealed with another memory key, or its row was changed")
                })
            }
            (ResultLocation::Sealed, None) => Err(gone(
                id,
                "it is sealed with the memory key, and none is set",
            )),
            (ResultLocation::Memory, _) => Err(gone(
                id,
                "no memory key is set, so it was kept in the memory of the server that ran it and nowhere else",
            )),
            (ResultLocation::Large, _) => Err(too_large(id)),
            (ResultLocation::None, _) => Err(gone(id, "there is none")),
        }
    }

    /// Cancels a job, waits a moment for its end, and returns its state then.
    ///
    /// A job that has already ended does not change.
    ///
    /// # Errors
    /// As [`JobBook::job`].
    pub async fn cancel(&self, owner: Option<&Identity>, id: &JobId) -> Result<Job> {
        let job = self.job(owner, id).await?;
        if job.state.is_final() {
            return Ok(job);
        }
        self.ask_to_cancel(id).await?;
        self.wait(owner, id, CANCEL_WAIT).await
    }

    /// Asks whoever runs a job to end it. A waiting job ends at once.
    pub(super) async fn ask_to_cancel(&self, id: &JobId) -> Result<()> {
        let now = self.clock.now();
        let expires_at = now.saturating_add(self.retention);
        self.system
            .ask_to_cancel_job(id.as_str(), now, expires_at)
            .await
            .map_err(unavailable)?;
        Ok(())
    }

    /// Waits until a job has ended, for at most `limit`, and returns its state then.
    ///
    /// # Errors
    /// As [`JobBook::job`].
    pub async fn wait(&self, owner: Option<&Identity>, id: &JobId, limit: Duration) -> Result<Job> {
        let late = tokio::time::sleep(limit);
        tokio::pin!(late);
        loop {
            let job = self.job(owner, id).await?;
            if job.state.is_final() {
                return Ok(job);
            }
            tokio::select! {
                () = &mut late => return Ok(job),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Ends or queues the jobs of lost processes, and returns how many of each.
    ///
    /// If the database is not available, a later check does it.
    pub(super) async fn end_lost(&self) -> LostJobs {
        let now = self.clock.now();
        let errors = LostErrors {
            stopped: JobError::stopped().to_document(),
            unclaimed: JobError::unclaimed().to_document(),
        };
        match self
            .system
            .end_lost_jobs(&errors, now, now.saturating_add(self.retention))
            .await
        {
            Ok(lost) => {
                if lost.failed > 0 {
                    tracing::warn!(
                        count = lost.failed,
                        "jobs of a process that is gone have failed"
                    );
                }
                if lost.queued > 0 {
                    tracing::warn!(
                        count = lost.queued,
                        "jobs of a process that is gone wait to be run again"
                    );
                }
                lost
            }
            Err(error) => {
                tracing::debug!(%error, "the owners of jobs could not be looked at");
                LostJobs::default()
            }
        }
    }

    pub(super) async fn find(
        &self,
        owner: Option<&Identity>,
        id: &JobId,
    ) -> Result<(Job, ResultLocation)> {
        self.end_lost().await;
        let row = self
            .system
            .find_job(id.as_str(), self.clock.now())
            .await
            .map_err(unavailable)?;
        // The owner is known even if the rest of the row is unreadable.
        let theirs = |row: &JobRow| {
            owner.is_none_or(|it| {
                !it.is_anonymous() && (it.tenant(), it.user()) == (&row.tenant, &row.subject)
            })
        };
        read(row.filter(theirs).ok_or_else(|| unknown(id))?)
    }
}

fn read(row: JobRow) -> Result<(Job, ResultLocation)> {
    let id = row.id.clone();
    document::of_row(row).ok_or_else(|| {
        tracing::warn!(job = id, "the row of a job cannot be read");
        Error::new(
            Code::Internal,
            format!("the record of job {} is damaged", id.escape_debug()),
        )
    })
}

/// Returns an error if a job has no outcome, with the reason.
pub(super) fn refusal(job: &Job) -> Result<()> {
    match job.state {
        JobState::Succeeded => Ok(()),
        JobState::Failed => Err(job
            .error
            .as_ref()
            .unwrap_or(&JobError::stopped())
            .to_error()),
        JobState::Cancelled => Err(Error::new(Code::Cancelled, "the job was cancelled")),
        state => {
            let message = format!("job {} has not ended: it is {}", job.id, state.as_str());
            Err(Error::new(Code::Conflict, message).with_retry_after(Duration::from_secs(1)))
        }
    }
}

/// Error for an unknown job, or one of another caller.
pub(super) fn unknown(id: &JobId) -> Error {
    Error::new(Code::NotFound, format!("there is no job {id}"))
}

/// Returns the error for a result that is not kept.
pub(super) fn gone(id: &JobId, why: &str) -> Error {
    Error::new(
        Code::NotFound,
        format!("the result of job {id} is missing: {why}"),
    )
}

/// Error for a result that was too large to be kept.
pub(super) fn too_large(id: &JobId) -> Error {
    gone(
        id,
        "it was larger than jobs.max_result_bytes; what is large belongs into artifacts",
    )
}

pub(super) fn unavailable(error: StoreError) -> Error {
    let code = if error.is_temporary() {
        Code::Overloaded
    } else {
        Code::Internal
    };
    Error::new(code, "the record of jobs is not available").with_source(error)
}
