//! Jobs in the system database: caller, pack, progress and result.
//!
//! Jobs outlive the process that runs them. Each process that runs jobs is a
//! [`Replica`](crate::Replica). When one is gone, another one ends its jobs
//! ([`System::end_lost_jobs`]). The engine defines the meaning of the columns: here states and
//! documents are texts.

use std::sync::Arc;

use helmdeck_core::Timestamp;
use helmdeck_memory::Result;
use serde::{Deserialize, Serialize};

use crate::ends::CallEnd;
use crate::system::System;

/// A job as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its id; ids sort by creation time.
    pub id: String,
    /// The tenant of its caller.
    pub tenant: String,
    /// The user of its caller.
    pub subject: String,
    /// The pack.
    pub pack: String,
    /// The pack's version.
    pub version: u32,
    /// `queued`, `running`, or how it ended.
    pub state: String,
    /// The replica that runs it ([`Replica::id`](crate::Replica::id)).
    pub owner: String,
    /// Grows with every change.
    pub revision: u64,
    /// Progress, 0 to 100.
    pub percent: Option<f64>,
    /// Last progress message.
    pub message: Option<String>,
    /// Time of that message.
    pub progress_at: Option<Timestamp>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Start time.
    pub started_at: Option<Timestamp>,
    /// End time; `None` = it has not ended.
    pub ended_at: Option<Timestamp>,
    /// When the row is swept, if it has ended.
    pub expires_at: Timestamp,
    /// Why it failed, as a JSON document.
    pub error: Option<String>,
    /// The files that it wrote, as a JSON document.
    pub artifacts: Option<String>,
    /// Where its result is: `none`, `sealed`, `memory`, `large`.
    pub kept: String,
    /// The number of this run of its call, from 1.
    pub attempt: u32,
    /// How often its call is run again if the replica that runs it is lost.
    pub retries: u32,
    /// When a schedule wanted it; `None` = a caller submitted it.
    pub due_at: Option<Timestamp>,
}

/// A job that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedJob {
    /// Its last row.
    pub row: JobRow,
    /// Its sealed result, if it has one.
    pub sealed: Option<Vec<u8>>,
}

/// Filter for a list of jobs.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Tenant and user; `None` = all callers.
    pub caller: Option<(String, String)>,
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those older than this id.
    pub before: Option<String>,
}

/// Errors of jobs that end without their owner, as JSON documents.
#[derive(Debug, Clone)]
pub struct LostErrors {
    /// Of those whose replica is gone.
    pub stopped: String,
    /// Of those that no replica took.
    pub unclaimed: String,
}

/// What became of jobs without an owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostJobs {
    /// How many have failed.
    pub failed: u64,
    /// How many wait again, to be run by another replica.
    pub queued: u64,
}

impl System {
    /// Writes a new job, unless its caller has `limit` unfinished jobs; returns whether it did.
    ///
    /// The oldest ended jobs of the caller make room.
    ///
    /// # Errors
    /// `Unavailable`, also if the replica that the row names is no longer alive; `Corrupt`.
    pub async fn add_job(&self, row: JobRow, limit: u64) -> Result<bool> {
        self.driver().add_job(row, limit).await
    }

    /// Saves the state of jobs of one owner, each with its sealed result if it has one: all or
    /// none.
    ///
    /// A row that is newer, has ended or is gone stays as it is. Returns `false` if the owner is no
    /// longer known as alive: then nothing is written, and other processes end its jobs.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn save_jobs(
        &self,
        owner: Arc<str>,
        rows: Vec<(JobRow, Option<Vec<u8>>)>,
    ) -> Result<bool> {
        if rows.is_empty() {
            return Ok(true);
        }
        self.driver().save_jobs(owner, rows).await
    }

    /// Writes the end of a job to the journal, and then to the database as soon as that can be
    /// reached, by this process or the next one with the journal.
    ///
    /// No lease is needed. A job that others queued again or took over is theirs; one that they
    /// ended because its owner was gone gets this end.
    pub async fn end_job_later(&self, end: EndedJob) {
        self.end_later(CallEnd::Job(Box::new(end))).await;
    }

    /// Returns a job by its id, `None` if there is none or it has expired.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn find_job(&self, id: &str, now: Timestamp) -> Result<Option<JobRow>> {
        self.driver().job(id.to_owned(), now).await
    }

    /// Returns the sealed result of a job, `None` if there is none.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn job_result(&self, id: &str) -> Result<Option<Vec<u8>>> {
        self.driver().job_result(id.to_owned()).await
    }

    /// Returns the ids that have no row any more.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn gone_jobs(&self, ids: Vec<String>) -> Result<Vec<String>> {
        self.driver().gone_jobs(ids).await
    }

    /// Lists at most `limit` jobs, newest first, without expired ones.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn jobs(
        &self,
        filter: JobFilter,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<JobRow>> {
        self.driver().jobs(filter, limit, now).await
    }

    /// Requests the end of a job; returns whether it exists and has not ended.
    ///
    /// Its owner finds the request with [`System::jobs_to_cancel`]. A job that waits for any
    /// replica ends at once.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn ask_to_cancel_job(
        &self,
        id: &str,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool> {
        self.driver()
            .ask_to_cancel_job(id.to_owned(), now, expires_at)
            .await
    }

    /// Returns the ids of an owner's unfinished jobs with a cancel request.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn jobs_to_cancel(&self, owner: &str) -> Result<Vec<String>> {
        self.driver().jobs_to_cancel(owner.to_owned()).await
    }

    /// Takes the jobs of replicas that are gone: those that may run again are queued, the others
    /// end as `failed`.
    ///
    /// A job that no replica took until it expired ends too. In SQLite an owner whose lock cannot
    /// be read counts as alive. Ends that the journal has are written before. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn end_lost_jobs(
        &self,
        errors: &LostErrors,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<LostJobs> {
        self.write_job_ends().await?;
        self.driver()
            .end_lost_jobs(errors.clone(), now, expires_at)
            .await
    }

    /// Deletes the ended jobs of a caller. Returns how many it deleted, and how many have not
    /// ended.
    ///
    /// Creates no database. SQLite overwrites the bytes, and empties the log unless a reader
    /// prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget_ended_jobs(&self, tenant: &str, subject: &str) -> Result<(u64, u64)> {
        self.driver()
            .forget_ended_jobs(tenant.to_owned(), subject.to_owned())
            .await
    }
}
