//! The queue that replicas share, and the runs of schedules.
//!
//! A job that waits has the owner `queue`, whose lease never ends. A claim is one statement.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::signed;
use helmdeck_memory::{Result, StoreError};

use super::args::args;
use super::jobs::{self, COLUMNS, insert, strings};
use super::{CHANGE, Postgres, READ, WRITE, on_server};
use crate::driver::QueueRows;
use crate::jobs::JobRow;
use crate::queue::{Accepted, Claim, ClaimId, ClaimedJob, JobLimits, QueuedCall};
use crate::schedules::{DueRun, Scheduled};

/// Deletes what is needed to run jobs that have ended.
pub(super) const DELETE_CALLS: &str = "DELETE FROM system_job_calls c USING system_jobs j WHERE j.id = c.id AND j.ended_at IS NOT NULL";

const RELEASE: &str = "
WITH lease AS MATERIALIZED
     (SELECT id FROM system_replicas WHERE id = $1 AND expires_at > clock_timestamp() FOR KEY SHARE)
UPDATE system_jobs j
   SET owner = 'queue', state = 'queued', started_at = NULL, percent = NULL, message = NULL, progress_at = NULL,
       attempt = attempt + 1, revision = greatest(j.revision, given.revision) + 1, expires_at = $4
  FROM lease, unnest($2::text[], $3::bigint[]) AS given (id, revision)
 WHERE j.id = given.id AND j.owner = lease.id AND j.ended_at IS NULL AND NOT j.cancel AND j.attempt <= j.retries
   AND EXISTS (SELECT 1 FROM system_job_calls c WHERE c.id = j.id)
RETURNING j.id";

const RETURN: &str = "
UPDATE system_jobs j SET owner = 'queue', state = 'queued', started_at = NULL, revision = j.revision + 1
  FROM unnest($1::text[], $2::bigint[]) AS lost (owner, claim)
 WHERE j.owner = lost.owner AND j.claim = lost.claim AND j.ended_at IS NULL";

/// Of the replicas that try a due time of one pack, one looks at a time. First half of the lock:
/// "sche".
const SCHEDULE: &str = "SELECT pg_advisory_xact_lock(1935894629, hashtext($1))";

/// The last due time of a pack; the job of this due time; whether the last job of it has not ended;
/// and whether this due time is more than a minute away by the clock of the database.
const LAST_RUN: &str = "
SELECT (SELECT max(due_at) FROM system_schedule_runs WHERE pack = $1),
       (SELECT job FROM system_schedule_runs WHERE pack = $1 AND due_at = $2),
       EXISTS (SELECT 1 FROM system_jobs j WHERE j.ended_at IS NULL AND j.id =
               (SELECT job FROM system_schedule_runs WHERE pack = $1 AND job IS NOT NULL ORDER BY due_at DESC LIMIT 1)),
       $2 > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 60000000";

/// Ends the last job of a pack if it waits for what it was made for: no replica may be left that
/// can run it.
const REPLACE_WAITING: &str = "
WITH replaced AS
     (UPDATE system_jobs j SET state = 'failed', error = $3, ended_at = $4, expires_at = $5, revision = revision + 1
       WHERE j.owner = 'queue' AND j.ended_at IS NULL AND j.label <> $2 AND j.id =
             (SELECT job FROM system_schedule_runs WHERE pack = $1 AND job IS NOT NULL ORDER BY due_at DESC LIMIT 1)
      RETURNING j.id)
DELETE FROM system_job_calls c USING replaced WHERE c.id = replaced.id";

/// Takes a due time. Of replicas that try at once, the others wait, and find it taken.
const TAKE_RUN: &str = "
INSERT INTO system_schedule_runs (pack, due_at, job) VALUES ($1, $2, $3) ON CONFLICT (pack, due_at) DO NOTHING";

#[async_trait]
impl QueueRows for Postgres {
    fn has_queue(&self) -> bool {
        true
    }

    async fn queue_job(
        &self,
        row: JobRow,
        call: QueuedCall,
        limits: JobLimits,
    ) -> Result<Accepted> {
        let accepted = on_server!(self, WRITE, |db| {
            let transaction = db.transaction().await?;
            let accepted = insert(&*transaction, &row, Some(&call), limits).await?;
            transaction.commit().await?;
            Ok(accepted)
        })?;
        Ok(accepted.unwrap_or(Accepted::QueueFull))
    }

    async fn claim_jobs(&self, claim: Claim) -> Result<Vec<ClaimedJob>> {
        let statement =
            format!("SELECT {COLUMNS}, cancel FROM system_claim_jobs($1, $2, $3, $4, $5, $6)");
        let (labels, number) = (claim.labels.to_vec(), signed(claim.id.number));
        let (places, per_caller, now) = (
            signed(claim.places),
            signed(claim.per_caller),
            claim.now.micros(),
        );
        let claimed = on_server!(self, CHANGE, |db| {
            let rows = db
                .query_typed(
                    &statement,
                    args![&*claim.id.owner, number, labels, places, per_caller, now],
                )
                .await?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let ids: Vec<&str> = rows
                .iter()
                .map(|row| row.try_get(0))
                .collect::<Result<_, _>>()?;
            let mut calls = BTreeMap::new();
            for row in db
                .query_typed(
                    "SELECT id, sealed FROM system_job_calls WHERE id = ANY($1)",
                    args![ids],
                )
                .await?
            {
                calls.insert(row.try_get::<_, String>(0)?, row.try_get::<_, Vec<u8>>(1)?);
            }
            let mut claimed = Vec::with_capacity(rows.len());
            for row in &rows {
                let (cancelled, row) = (row.try_get(21)?, jobs::job(row)?);
                // Without its call it has ended meanwhile.
                if let Some(sealed) = calls.remove(&row.id) {
                    claimed.push(ClaimedJob {
                        row,
                        sealed,
                        cancelled,
                    });
                }
            }
            Ok(claimed)
        })?;
        Ok(claimed.unwrap_or_default())
    }

    async fn release_jobs(
        &self,
        owner: Arc<str>,
        jobs: Vec<(String, u64)>,
        expires_at: Timestamp,
    ) -> Result<Vec<String>> {
        let revisions: Vec<i64> = jobs.iter().map(|(_, revision)| signed(*revision)).collect();
        let ids: Vec<&str> = jobs.iter().map(|(id, _)| id.as_str()).collect();
        let released = on_server!(self, READ, |db| {
            strings(
                &db.query_typed(RELEASE, args![&*owner, ids, revisions, expires_at.micros()])
                    .await?,
            )
        })?;
        Ok(released.unwrap_or_default())
    }

    async fn return_claims(&self, claims: Vec<ClaimId>) -> Result<u64> {
        let owners: Vec<&str> = claims.iter().map(|claim| &*claim.owner).collect();
        let numbers: Vec<i64> = claims.iter().map(|claim| signed(claim.number)).collect();
        let returned = on_server!(self, READ, |db| {
            Ok(db.execute_typed(RETURN, args![owners, numbers]).await?)
        })?;
        Ok(returned.unwrap_or(0))
    }

    async fn run_schedule(&self, run: DueRun) -> Result<Scheduled> {
        let due_at = run.due_at.micros();
        let became = on_server!(self, WRITE, |db| {
            let transaction = db.transaction().await?;
            transaction.query_typed(SCHEDULE, args![run.pack]).await?;
            if let Some(call) = &run.call {
                let (ended, expires) = (run.row.created_at.micros(), run.row.expires_at.micros());
                transaction
                    .execute_typed(
                        REPLACE_WAITING,
                        args![run.pack, call.label, run.unclaimed, ended, expires],
                    )
                    .await?;
            }
            let found = transaction
                .query_typed_one(LAST_RUN, args![run.pack, due_at])
                .await?;
            let (last, running): (Option<i64>, bool) = (found.try_get(0)?, found.try_get(2)?);
            if found
                .try_get::<_, Option<String>>(1)?
                .is_some_and(|job| job == run.row.id)
            {
                // An earlier try, whose answer was lost.
                return Ok(Scheduled::Added);
            }
            if last.is_some_and(|last| last >= due_at) {
                return Ok(Scheduled::Taken);
            }
            if found.try_get::<_, bool>(3)? {
                let message =
                    "a scheduled run is due only later by the clock of the database".to_owned();
                return Err(StoreError::Unavailable {
                    message,
                    source: None,
                }
                .into());
            }
            let mut became = match (last, running) {
                (None, _) => Scheduled::First,
                (Some(_), true) => Scheduled::StillRunning,
                (Some(_), false) => Scheduled::Added,
            };
            let job = (became == Scheduled::Added).then_some(&run.row.id);
            if transaction
                .execute_typed(TAKE_RUN, args![run.pack, due_at, job])
                .await?
                == 0
            {
                return Ok(Scheduled::Taken);
            }
            if became == Scheduled::Added
                && insert(&*transaction, &run.row, run.call.as_ref(), run.limits).await?
                    != Accepted::Added
            {
                let without =
                    "UPDATE system_schedule_runs SET job = NULL WHERE pack = $1 AND due_at = $2";
                transaction
                    .execute_typed(without, args![run.pack, due_at])
                    .await?;
                became = Scheduled::Refused;
            }
            transaction.commit().await?;
            Ok(became)
        })?;
        Ok(became.unwrap_or(Scheduled::Taken))
    }
}
