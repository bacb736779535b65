//! The queue that replicas share, and the runs of schedules.
//!
//! A job that waits has the owner `queue`, whose lease never ends. A claim is one statement.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::numbers::signed;
use helmdeck_memory::Result;

use super::args::args;
use super::jobs::{self, COLUMNS, insert, strings};
use super::{CHANGE, Postgres, READ, WRITE_ONCE, on_server};
use crate::driver::QueueRows;
use crate::jobs::JobRow;
use crate::queue::{Accepted, Claim, ClaimedJob, JobLimits, QueuedCall};
use crate::schedules::{DueRun, Scheduled};

/// Deletes what is needed to run jobs that have ended.
pub(super) const DELETE_CALLS: &str =
    "DELETE FROM system_job_calls c USING system_jobs j WHERE j.id = c.id AND j.ended_at IS NOT NULL";

const RELEASE: &str = "
WITH lease AS MATERIALIZED
     (SELECT id FROM system_replicas WHERE id = $1 AND expires_at > clock_timestamp() FOR KEY SHARE)
UPDATE system_jobs j
   SET owner = 'queue', state = 'queued', started_at = NULL, percent = NULL, message = NULL, progress_at = NULL,
       attempt = attempt + 1, revision = greatest(j.revision, given.revision) + 1
  FROM lease, unnest($2::text[], $3::bigint[]) AS given (id, revision)
 WHERE j.id = given.id AND j.owner = lease.id AND j.ended_at IS NULL AND NOT j.cancel AND j.attempt <= j.retries
   AND EXISTS (SELECT 1 FROM system_job_calls c WHERE c.id = j.id)
RETURNING j.id";

/// Only jobs that were queued have a label.
const RETURN: &str = "
UPDATE system_jobs j SET owner = 'queue', state = 'queued', started_at = NULL, revision = j.revision + 1
 WHERE j.owner = $1 AND j.ended_at IS NULL AND j.label IS NOT NULL AND j.id <> ALL ($2)";

/// The last due time of a pack, and whether a job of it has not ended.
const LAST_RUN: &str = "
SELECT max(r.due_at), coalesce(bool_or(EXISTS (SELECT 1 FROM system_jobs j WHERE j.id = r.job AND j.ended_at IS NULL)), FALSE)
  FROM system_schedule_runs r WHERE r.pack = $1";

/// Takes a due time. Of replicas that try at once, the others wait, and find it taken.
const TAKE_RUN: &str = "
INSERT INTO system_schedule_runs (pack, due_at, job) VALUES ($1, $2, $3) ON CONFLICT (pack, due_at) DO NOTHING";

#[async_trait]
impl QueueRows for Postgres {
    fn has_queue(&self) -> bool {
        true
    }

    async fn queue_job(&self, row: JobRow, call: QueuedCall, limits: JobLimits) -> Result<Accepted> {
        let accepted = on_server!(self, WRITE_ONCE, |db| {
            let transaction = db.transaction().await?;
            let accepted = insert(&*transaction, &row, Some(&call), limits).await?;
            transaction.commit().await?;
            Ok(accepted)
        })?;
        Ok(accepted.unwrap_or(Accepted::QueueFull))
    }

    async fn claim_jobs(&self, owner: Arc<str>, claim: Claim) -> Result<Vec<ClaimedJob>> {
        let columns = COLUMNS.split(',').map(|name| format!("(c.job).{}", name.trim())).collect::<Vec<_>>().join(", ");
        let statement =
            format!("SELECT {columns}, c.call, (c.job).cancel FROM system_claim_jobs($1, $2, $3, $4, $5) AS c");
        let (labels, places, per_caller) = (claim.labels.to_vec(), signed(claim.places), signed(claim.per_caller));
        let claimed = on_server!(self, CHANGE, |db| {
            let rows =
                db.query_typed(&statement, args![&*owner, labels, places, per_caller, claim.now.micros()]).await?;
            rows.iter()
                .map(|row| {
                    let (sealed, cancelled) = (row.try_get(21)?, row.try_get(22)?);
                    Ok(ClaimedJob { row: jobs::job(row)?, sealed, cancelled })
                })
                .collect()
        })?;
        Ok(claimed.unwrap_or_default())
    }

    async fn release_jobs(&self, owner: Arc<str>, jobs: Vec<(String, u64)>) -> Result<Vec<String>> {
        let revisions: Vec<i64> = jobs.iter().map(|(_, revision)| signed(*revision)).collect();
        let ids: Vec<&str> = jobs.iter().map(|(id, _)| id.as_str()).collect();
        let released =
            on_server!(self, READ, |db| { strings(&db.query_typed(RELEASE, args![&*owner, ids, revisions]).await?) })?;
        Ok(released.unwrap_or_default())
    }

    async fn return_claims(&self, owner: Arc<str>, known: Vec<String>) -> Result<u64> {
        let returned = on_server!(self, READ, |db| { Ok(db.execute_typed(RETURN, args![&*owner, known]).await?) })?;
        Ok(returned.unwrap_or(0))
    }

    async fn run_schedule(&self, run: DueRun) -> Result<Scheduled> {
        let due_at = run.due_at.micros();
        let became = on_server!(self, WRITE_ONCE, |db| {
            let transaction = db.transaction().await?;
            let last = transaction.query_typed_one(LAST_RUN, args![run.pack]).await?;
            let (last, running): (Option<i64>, bool) = (last.try_get(0)?, last.try_get(1)?);
            if last.is_some_and(|last| last >= due_at) {
                return Ok(Scheduled::Taken);
            }
            let mut became = match (last, running) {
                (None, _) => Scheduled::First,
                (Some(_), true) => Scheduled::StillRunning,
                (Some(_), false) => Scheduled::Added,
            };
            let job = (became == Scheduled::Added).then_some(&run.row.id);
            if transaction.execute_typed(TAKE_RUN, args![run.pack, due_at, job]).await? == 0 {
                return Ok(Scheduled::Taken);
            }
            if became == Scheduled::Added
                && insert(&*transaction, &run.row, run.call.as_ref(), run.limits).await? != Accepted::Added
            {
                let without = "UPDATE system_schedule_runs SET job = NULL WHERE pack = $1 AND due_at = $2";
                transaction.execute_typed(without, args![run.pack, due_at]).await?;
                became = Scheduled::Refused;
            }
            transaction.commit().await?;
            Ok(became)
        })?;
        Ok(became.unwrap_or(Scheduled::Taken))
    }
}
