//! The queue of jobs that any replica may run: PostgreSQL has one, SQLite does not.
//!
//! A job waits without an owner, with its sealed call. A replica that has room claims it and is its
//! owner from then on. Claims are fair: callers with the fewest running jobs come first, and the
//! limit of a caller holds over all replicas.

use std::sync::Arc;

use helmdeck_core::Timestamp;
use helmdeck_memory::Result;

use crate::jobs::JobRow;
use crate::system::System;

/// A call that any replica may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedCall {
    /// What a replica needs to run it. Only replicas that name the same text in [`Claim::labels`]
    /// get it.
    pub label: String,
    /// The call, sealed by the one who stores it.
    pub sealed: Vec<u8>,
}

/// Limits of a new job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    /// Jobs of its caller that have not ended. The oldest ended ones make room.
    pub of_caller: u64,
    /// Jobs of all callers that wait for any replica.
    pub waiting: u64,
}

/// What became of a new job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It was written.
    Added,
    /// Its caller has too many that have not ended.
    CallerFull,
    /// Too many wait.
    QueueFull,
}

/// Names a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimId {
    /// The id of the replica that made it.
    pub owner: Arc<str>,
    /// Its number, different from those of all other claims under this id.
    pub number: u64,
}

/// Request for jobs.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its name.
    pub id: ClaimId,
    /// Labels of the calls that the replica is able to run.
    pub labels: Arc<[String]>,
    /// Limit of jobs.
    pub places: u64,
    /// Limit of running jobs of one caller, on all replicas.
    pub per_caller: u64,
    /// The time.
    pub now: Timestamp,
}

/// A job that a replica got, as its row is now.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedJob {
    /// Its row: running, and owned by the replica.
    pub row: JobRow,
    /// Its sealed call.
    pub sealed: Vec<u8>,
    /// Whether somebody wanted it to end while it waited.
    pub cancelled: bool,
}

impl System {
    /// Returns whether replicas share a queue of jobs.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        self.driver().has_queue()
    }

    /// Writes a new job for any replica; the owner of its row does not count.
    ///
    /// # Errors
    /// `Invalid` if there is no queue; `Unavailable`, `Corrupt`.
    pub async fn queue_job(
        &self,
        row: JobRow,
        call: QueuedCall,
        limits: JobLimits,
    ) -> Result<Accepted> {
        self.driver().queue_job(row, call, limits).await
    }

    /// Gives waiting jobs to a replica; none if it is no longer known as alive. If nothing waits,
    /// this is one cheap read.
    ///
    /// After an error the replica may own jobs without knowing it: they have to be returned
    /// ([`System::return_claims`]).
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn claim_jobs(&self, claim: Claim) -> Result<Vec<ClaimedJob>> {
        self.driver().claim_jobs(claim).await
    }

    /// Queues running jobs of a replica again, each with its last revision, to wait until
    /// `expires_at` at most.
    ///
    /// Returns the ids of those that wait now. The others may not run again, or somebody wants them
    /// to end. If the replica is no longer known as alive, nothing changes.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn release_jobs(
        &self,
        owner: Arc<str>,
        jobs: Vec<(String, u64)>,
        expires_at: Timestamp,
    ) -> Result<Vec<String>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.driver().release_jobs(owner, jobs, expires_at).await
    }

    /// Queues the jobs of claims again whose answers were lost: none of them has begun. Returns how
    /// many there were.
    ///
    /// The claim itself may still be on its way in the database, so this has to be done again a
    /// while later.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn return_claims(&self, claims: Vec<ClaimId>) -> Result<u64> {
        if claims.is_empty() {
            return Ok(0);
        }
        self.driver().return_claims(claims).await
    }
}
