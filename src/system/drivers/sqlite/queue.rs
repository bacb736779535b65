//! No queue that processes share, but schedules: a job belongs to the process that wrote it.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_memory::{Result, StoreError};

use super::{Sqlite, jobs};
use crate::driver::QueueRows;
use crate::jobs::JobRow;
use crate::queue::{Accepted, Claim, ClaimId, ClaimedJob, JobLimits, QueuedCall};
use crate::schedules::{DueRun, Scheduled};

#[async_trait]
impl QueueRows for Sqlite {
    fn has_queue(&self) -> bool {
        false
    }

    async fn queue_job(&self, _: JobRow, _: QueuedCall, _: JobLimits) -> Result<Accepted> {
        Err(no_queue())
    }

    async fn claim_jobs(&self, _: Claim) -> Result<Vec<ClaimedJob>> {
        Ok(Vec::new())
    }

    async fn release_jobs(
        &self,
        _: Arc<str>,
        _: Vec<(String, u64)>,
        _: Timestamp,
    ) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn return_claims(&self, _: Vec<ClaimId>) -> Result<u64> {
        Ok(0)
    }

    async fn run_schedule(&self, run: DueRun) -> Result<Scheduled> {
        if run.call.is_some() {
            return Err(no_queue());
        }
        self.0.write(move |db| {
            let (pack, due_at) = (&run.pack, run.due_at.micros());
            let last: Option<i64> = db
                .prepare_cached("SELECT max(due_at) FROM schedule_runs WHERE pack = ?1")?
                .query_row([pack], |row| row.get(0))?;
            if last.is_some_and(|last| last >= due_at) {
                return Ok(Scheduled::Taken);
            }
            let running: bool = db
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM jobs j WHERE j.ended_at IS NULL AND j.id =
                         (SELECT job FROM schedule_runs WHERE pack = ?1 AND job IS NOT NULL ORDER BY due_at DESC LIMIT 1))",
                )?
                .query_row([pack], |row| row.get(0))?;
            let became = match (last, running) {
                (None, _) => Scheduled::First,
                (Some(_), true) => Scheduled::StillRunning,
                (Some(_), false) if jobs::insert(db, &run.row, run.limits.of_caller)? => Scheduled::Added,
                (Some(_), false) => Scheduled::Refused,
            };
            let job = (became == Scheduled::Added).then_some(&run.row.id);
            db.prepare_cached("INSERT INTO schedule_runs (pack, due_at, job) VALUES (?1, ?2, ?3)")?
                .execute((pack, due_at, job))?;
            Ok(became)
        })
        .await
    }
}

fn no_queue() -> StoreError {
    StoreError::Invalid("this database has no queue that servers share")
}
