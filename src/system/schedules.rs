//! Runs of schedules: each due time of a pack is taken once, by whichever process comes first.

use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::Result;

use crate::jobs::JobRow;
use crate::queue::{JobLimits, QueuedCall};
use crate::system::System;

/// How long runs are kept. The last one of each pack stays.
pub const RUNS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// A due time, with the job of its run.
#[derive(Debug, Clone)]
pub struct DueRun {
    /// The pack.
    pub pack: String,
    /// The due time.
    pub due_at: Timestamp,
    /// The job.
    pub row: JobRow,
    /// Its call, if any replica may run it; `None` = the owner of the row runs it.
    pub call: Option<QueuedCall>,
    /// Limits of the job.
    pub limits: JobLimits,
    /// Error of a job of an earlier due time that still waits, for a version or a key of before.
    pub unclaimed: String,
}

/// What became of a due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduled {
    /// The job was written.
    Added,
    /// The pack has no earlier due time, so this one is only noted: schedules do not begin with a
    /// run that was missed.
    First,
    /// This due time, or a later one, was taken before.
    Taken,
    /// The pack's last job has not ended, so this due time was skipped.
    StillRunning,
    /// Its caller, or the queue, has too many jobs, so this due time was skipped.
    Refused,
}

impl System {
    /// Takes a due time of a schedule, and writes the job of its run: both or neither.
    ///
    /// With the same job, it may be tried again after an error.
    ///
    /// # Errors
    /// `Unavailable`, also if the row names an owner that is no longer alive; `Corrupt`.
    pub async fn run_schedule(&self, run: DueRun) -> Result<Scheduled> {
        self.driver().run_schedule(run).await
    }
}
