//! Jobs. The owner of a job is a lease: without it, nothing is written.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::drivers::postgres::session::Outcome;
use helmdeck_memory::{Result, StoreError};
use tokio_postgres::{GenericClient, Row};

use super::args::args;
use super::queue::DELETE_CALLS;
use super::{Postgres, READ, WRITE, on_server, text};
use crate::driver::JobRows;
use crate::jobs::{EndedJob, JobFilter, JobRow, LostErrors, LostJobs};
use crate::queue::{Accepted, JobLimits, QueuedCall};

pub(super) const COLUMNS: &str = "id, tenant, subject, pack, version, state, owner, revision, percent, message, progress_at, created_at, \
                       started_at, ended_at, expires_at, error, artifacts, kept, attempt, retries, due_at";

/// First half of the advisory locks of callers: "jobs".
const CALLERS: &str = "SELECT pg_advisory_xact_lock(1785684595, hashtext($1 || '/' || $2))";

const COUNT: &str = "
SELECT count(*), count(*) FILTER (WHERE ended_at IS NULL) FROM system_jobs WHERE tenant = $1 AND subject = $2";

const WAITING: &str = "SELECT count(*) FROM system_jobs WHERE owner = 'queue' AND ended_at IS NULL";

const MAKE_ROOM: &str = "
DELETE FROM system_jobs WHERE id IN (SELECT id FROM system_jobs
       WHERE tenant = $1 AND subject = $2 AND ended_at IS NOT NULL ORDER BY id LIMIT $3)";

/// Saves rows of a live owner. The lease is locked, so that it does not end in the middle.
const SAVE: &str = "
WITH lease AS MATERIALIZED
     (SELECT id FROM system_replicas WHERE id = $1 AND expires_at > clock_timestamp() FOR KEY SHARE),
new AS MATERIALIZED
     (SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::float8[], $6::text[], $7::bigint[], $8::bigint[],
             $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::bytea[])
      AS n (id, state, revision, percent, message, progress_at, started_at, ended_at, expires_at, error, artifacts, kept, sealed)),
saved AS
     (UPDATE system_jobs j
         SET state = new.state, revision = new.revision, percent = new.percent, message = new.message,
             progress_at = new.progress_at, started_at = new.started_at, ended_at = new.ended_at,
             expires_at = new.expires_at, error = new.error, artifacts = new.artifacts, kept = new.kept
        FROM new, lease
       WHERE j.id = new.id AND j.owner = lease.id AND j.revision < new.revision AND j.ended_at IS NULL
       RETURNING j.id),
results AS
     (INSERT INTO system_job_results (id, sealed)
      SELECT new.id, new.sealed FROM new JOIN saved USING (id) WHERE new.sealed IS NOT NULL
      ON CONFLICT (id) DO UPDATE SET sealed = excluded.sealed),
calls AS
     (DELETE FROM system_job_calls c USING saved, new WHERE c.id = saved.id AND new.id = saved.id AND new.ended_at IS NOT NULL)
SELECT EXISTS (SELECT 1 FROM lease)";

/// Ends a job of an owner, which may be gone, unless it has an end that says more than that.
const END: &str = "
WITH ended AS
     (UPDATE system_jobs
         SET state = $3, revision = greatest(revision + 1, $4), started_at = $5, ended_at = $6, expires_at = $7, error = $8,
             artifacts = $9, kept = $10
       WHERE id = $1 AND owner = $2 AND ended_at IS NULL
       RETURNING id),
results AS
     (INSERT INTO system_job_results (id, sealed) SELECT id, $11 FROM ended WHERE $11 IS NOT NULL
      ON CONFLICT (id) DO UPDATE SET sealed = excluded.sealed),
calls AS (DELETE FROM system_job_calls c USING ended WHERE c.id = ended.id)
SELECT count(*) FROM ended";

/// Of one caller, over the index by caller; a plan does not depend on its parameters.
const OF_CALLER: &str = "WHERE tenant = $1 AND subject = $2";
/// Of everybody.
const OF_ALL: &str = "WHERE $1::text IS NULL AND $2::text IS NULL";
const LIST: &str = "
   AND (ended_at IS NULL OR expires_at > $3)
   AND ($4::text IS NULL OR state = $4) AND ($5::text IS NULL OR id < $5)
 ORDER BY id DESC LIMIT $6";

/// Whether a job has an owner that is gone, or was taken by none until it expired.
const LOST: &str = "
SELECT EXISTS (SELECT 1 FROM system_jobs j WHERE j.ended_at IS NULL AND CASE WHEN j.owner = 'queue' THEN j.expires_at <= $1
       ELSE NOT EXISTS (SELECT 1 FROM system_replicas r WHERE r.id = j.owner AND r.expires_at > clock_timestamp()) END)";

/// One replica looks for lost jobs at a time: a statement that waited for a row would judge its
/// owner by what was there before. The number is `hd_lost`.
const LOOKING: &str = "SELECT pg_advisory_xact_lock(29383758581822324)";

/// Ends leases first, so that none is renewed while its jobs end.
const END_LEASES: &str = "
DELETE FROM system_replicas WHERE id IN
       (SELECT id FROM system_replicas WHERE expires_at <= clock_timestamp() ORDER BY id FOR UPDATE)";

/// Queues the jobs of lost owners that may run again. Their last events may not have been stored,
/// so that the revision leaves room for them.
const QUEUE_LOST: &str = "
UPDATE system_jobs j SET owner = 'queue', state = 'queued', started_at = NULL, percent = NULL, message = NULL,
       progress_at = NULL, attempt = attempt + 1, revision = revision + 1000, expires_at = $1
 WHERE j.ended_at IS NULL AND j.owner <> 'queue' AND NOT j.cancel AND j.attempt <= j.retries
   AND EXISTS (SELECT 1 FROM system_job_calls c WHERE c.id = j.id)
   AND NOT EXISTS (SELECT 1 FROM system_replicas r WHERE r.id = j.owner)";

const END_LOST: &str = "
UPDATE system_jobs j SET state = 'failed', error = $1, ended_at = $2, expires_at = $3, kept = 'none', revision = revision + 1
 WHERE j.ended_at IS NULL AND j.owner <> 'queue' AND NOT EXISTS (SELECT 1 FROM system_replicas r WHERE r.id = j.owner)";

const END_UNCLAIMED: &str = "
UPDATE system_jobs j SET state = 'failed', error = $1, ended_at = $2, expires_at = $3, kept = 'none', revision = revision + 1
 WHERE j.ended_at IS NULL AND j.owner = 'queue' AND j.expires_at <= $2";

/// Asks the owner of a job to end it. A job without an owner is ended.
const CANCEL: &str = "
WITH asked AS
     (UPDATE system_jobs SET cancel = TRUE,
             state = CASE WHEN owner = 'queue' THEN 'cancelled' ELSE state END,
             ended_at = CASE WHEN owner = 'queue' THEN $2 END,
             expires_at = CASE WHEN owner = 'queue' THEN $3 ELSE expires_at END,
             revision = CASE WHEN owner = 'queue' THEN revision + 1 ELSE revision END
       WHERE id = $1 AND ended_at IS NULL RETURNING id, ended_at),
calls AS (DELETE FROM system_job_calls c USING asked WHERE c.id = asked.id AND asked.ended_at IS NOT NULL)
SELECT count(*) FROM asked";

#[async_trait]
impl JobRows for Postgres {
    async fn add_job(&self, row: JobRow, limit: u64) -> Result<bool> {
        let limits = JobLimits {
            of_caller: limit,
            waiting: u64::MAX,
        };
        let added = on_server!(self, WRITE, |db| {
            let transaction = db.transaction().await?;
            let accepted = insert(&*transaction, &row, None, limits).await?;
            transaction.commit().await?;
            Ok(accepted == Accepted::Added)
        })?;
        Ok(added.unwrap_or(false))
    }

    async fn save_jobs(
        &self,
        owner: Arc<str>,
        rows: Vec<(JobRow, Option<Vec<u8>>)>,
    ) -> Result<bool> {
        let texts = |of: fn(&JobRow) -> &str| -> Vec<&str> {
            rows.iter().map(|(row, _)| of(row)).collect()
        };
        let documents = |of: fn(&JobRow) -> Option<&str>| -> Vec<Option<String>> {
            rows.iter()
                .map(|(row, _)| of(row).map(|document| text(document).into_owned()))
                .collect()
        };
        let times = |of: fn(&JobRow) -> Option<Timestamp>| -> Vec<Option<i64>> {
            rows.iter()
                .map(|(row, _)| of(row).map(Timestamp::micros))
                .collect()
        };
        let revisions: Vec<i64> = rows.iter().map(|(row, _)| signed(row.revision)).collect();
        let percents: Vec<Option<f64>> = rows.iter().map(|(row, _)| row.percent).collect();
        let sealed: Vec<Option<&[u8]>> = rows.iter().map(|(_, sealed)| sealed.as_deref()).collect();
        let (ids, states, kept) = (
            texts(|row| &row.id),
            texts(|row| &row.state),
            texts(|row| &row.kept),
        );
        let (messages, errors) = (
            documents(|row| row.message.as_deref()),
            documents(|row| row.error.as_deref()),
        );
        let artifacts = documents(|row| row.artifacts.as_deref());
        let (progress, started) = (times(|row| row.progress_at), times(|row| row.started_at));
        let (ended, expires) = (times(|row| row.ended_at), times(|row| Some(row.expires_at)));
        let saved = on_server!(self, READ, |db| {
            Ok(db
                .query_typed_one(
                    SAVE,
                    args![
                        &*owner, ids, states, revisions, percents, messages, progress, started,
                        ended, expires, errors, artifacts, kept, sealed
                    ],
                )
                .await?
                .try_get(0)?)
        })?;
        Ok(saved.unwrap_or(false))
    }

    async fn end_job(&self, EndedJob { row, sealed }: EndedJob) -> Result<()> {
        let micros = |time: Option<Timestamp>| time.map(Timestamp::micros);
        let (started, ended, expires) = (
            micros(row.started_at),
            micros(row.ended_at),
            row.expires_at.micros(),
        );
        let [error, artifacts] = [&row.error, &row.artifacts].map(|document| {
            document
                .as_deref()
                .map(|document| text(document).into_owned())
        });
        let ended = on_server!(self, READ, |db| {
            let revision = signed(row.revision);
            let values = args![
                row.id, row.owner, row.state, revision, started, ended, expires, error, artifacts,
                row.kept, sealed
            ];
            Ok(db.query_typed_one(END, values).await.map(drop)?)
        });
        ended.map(drop)
    }

    async fn job(&self, id: String, now: Timestamp) -> Result<Option<JobRow>> {
        let find = format!(
            "SELECT {COLUMNS} FROM system_jobs WHERE id = $1 AND (ended_at IS NULL OR expires_at > $2)"
        );
        let found = on_server!(self, READ, |db| {
            db.query_typed_opt(&find, args![id, now.micros()])
                .await?
                .as_ref()
                .map(job)
                .transpose()
        })?;
        Ok(found.flatten())
    }

    async fn job_result(&self, id: String) -> Result<Option<Vec<u8>>> {
        let find = "SELECT sealed FROM system_job_results WHERE id = $1";
        let found = on_server!(self, READ, |db| {
            match db.query_typed_opt(find, args![id]).await? {
                Some(row) => Ok(Some(row.try_get(0)?)),
                None => Ok(None),
            }
        })?;
        Ok(found.flatten())
    }

    async fn gone_jobs(&self, ids: Vec<String>) -> Result<Vec<String>> {
        let gone = "SELECT id FROM unnest($1::text[]) AS asked (id)
                    WHERE NOT EXISTS (SELECT 1 FROM system_jobs j WHERE j.id = asked.id)";
        let found = on_server!(self, READ, |db| {
            strings(&db.query_typed(gone, args![ids]).await?)
        })?;
        // Without tables there is no row.
        Ok(found.unwrap_or(ids))
    }

    async fn jobs(&self, filter: JobFilter, limit: usize, now: Timestamp) -> Result<Vec<JobRow>> {
        let whose = if filter.caller.is_some() {
            OF_CALLER
        } else {
            OF_ALL
        };
        let list = format!("SELECT {COLUMNS} FROM system_jobs {whose} {LIST}");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (tenant, subject) = filter.caller.unzip();
        let found = on_server!(self, READ, |db| {
            db.query_typed(
                &list,
                args![
                    tenant,
                    subject,
                    now.micros(),
                    filter.state,
                    filter.before,
                    limit
                ],
            )
            .await?
            .iter()
            .map(job)
            .collect()
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn ask_to_cancel_job(
        &self,
        id: String,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool> {
        let asked = on_server!(self, READ, |db| {
            let row = db
                .query_typed_one(CANCEL, args![id, now.micros(), expires_at.micros()])
                .await?;
            Ok(row.try_get::<_, i64>(0)?)
        })?;
        Ok(asked.unwrap_or(0) > 0)
    }

    async fn jobs_to_cancel(&self, owner: String) -> Result<Vec<String>> {
        let all = "SELECT id FROM system_jobs WHERE owner = $1 AND ended_at IS NULL AND cancel";
        let found = on_server!(self, READ, |db| {
            strings(&db.query_typed(all, args![owner]).await?)
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn end_lost_jobs(
        &self,
        errors: LostErrors,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<LostJobs> {
        let ended = on_server!(self, READ, |db| {
            if !db
                .query_typed_one(LOST, args![now.micros()])
                .await?
                .try_get::<_, bool>(0)?
            {
                return Ok(LostJobs::default());
            }
            let transaction = db.transaction().await?;
            transaction.query_typed(LOOKING, &[]).await?;
            transaction.execute_typed(END_LEASES, &[]).await?;
            let queued = transaction
                .execute_typed(QUEUE_LOST, args![expires_at.micros()])
                .await?;
            let mut failed = 0;
            for (sql, error) in [
                (END_LOST, &errors.stopped),
                (END_UNCLAIMED, &errors.unclaimed),
            ] {
                failed += transaction
                    .execute_typed(sql, args![error, now.micros(), expires_at.micros()])
                    .await?;
            }
            if failed > 0 {
                transaction.execute_typed(DELETE_CALLS, &[]).await?;
            }
            transaction.commit().await?;
            Ok(LostJobs { failed, queued })
        })?;
        Ok(ended.unwrap_or_default())
    }

    async fn forget_ended_jobs(&self, tenant: String, subject: String) -> Result<(u64, u64)> {
        let forget =
            "DELETE FROM system_jobs WHERE tenant = $1 AND subject = $2 AND ended_at IS NOT NULL";
        let forgotten = on_server!(self, READ, |db| {
            let gone = db.execute_typed(forget, args![tenant, subject]).await?;
            let count = "SELECT count(*) FROM system_jobs WHERE tenant = $1 AND subject = $2";
            let live = db.query_typed_one(count, args![tenant, subject]).await?;
            Ok((gone, unsigned(live.try_get(0)?)))
        })?;
        Ok(forgotten.unwrap_or((0, 0)))
    }
}

/// Writes a new job, unless there are too many, and its call if any replica may run it. A job that
/// is there already was written by an earlier try whose answer was lost.
///
/// A job without a call needs a live owner. The transaction must be given up if it has none.
pub(super) async fn insert(
    db: &(impl GenericClient + Sync),
    row: &JobRow,
    call: Option<&QueuedCall>,
    limits: JobLimits,
) -> Outcome<Accepted> {
    // Of the adds of one caller on all replicas, one counts at a time.
    db.query_typed(CALLERS, args![row.tenant, row.subject])
        .await?;
    let counts = db
        .query_typed_one(COUNT, args![row.tenant, row.subject])
        .await?;
    let (all, live): (i64, i64) = (counts.try_get(0)?, counts.try_get(1)?);
    let limit = signed(limits.of_caller);
    let is_there = async || -> Outcome<bool> {
        let find = "SELECT EXISTS (SELECT 1 FROM system_jobs WHERE id = $1)";
        Ok(db.query_typed_one(find, args![row.id]).await?.try_get(0)?)
    };
    if live >= limit {
        return Ok(if is_there().await? {
            Accepted::Added
        } else {
            Accepted::CallerFull
        });
    }
    if call.is_some() {
        let waiting: i64 = db.query_typed_one(WAITING, &[]).await?.try_get(0)?;
        if waiting >= signed(limits.waiting) {
            return Ok(if is_there().await? {
                Accepted::Added
            } else {
                Accepted::QueueFull
            });
        }
    }
    if all >= limit {
        db.execute_typed(MAKE_ROOM, args![row.tenant, row.subject, all + 1 - limit])
            .await?;
    }
    let insert = format!(
        "INSERT INTO system_jobs ({COLUMNS}, label)
         SELECT $1, $2, $3, $4, $5, $6, id, $8, NULL, NULL, NULL, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19
         FROM system_replicas WHERE id = $7 AND expires_at > clock_timestamp() FOR KEY SHARE
         ON CONFLICT (id) DO NOTHING"
    );
    let owner = if call.is_some() { "queue" } else { &row.owner };
    let (started_at, ended_at) = (
        row.started_at.map(Timestamp::micros),
        row.ended_at.map(Timestamp::micros),
    );
    let (due_at, label) = (
        row.due_at.map(Timestamp::micros),
        call.map(|call| &call.label),
    );
    let written = db
        .execute_typed(
            &insert,
            args![
                row.id,
                row.tenant,
                row.subject,
                row.pack,
                i64::from(row.version),
                row.state,
                owner,
                signed(row.revision),
                row.created_at.micros(),
                started_at,
                ended_at,
                row.expires_at.micros(),
                row.error,
                row.artifacts,
                row.kept,
                i64::from(row.attempt),
                i64::from(row.retries),
                due_at,
                label
            ],
        )
        .await?;
    if written == 0 {
        if is_there().await? {
            return Ok(Accepted::Added);
        }
        let message = "this replica was not heard of for too long and is joining again".to_owned();
        return Err(StoreError::Unavailable {
            message,
            source: None,
        }
        .into());
    }
    if let Some(call) = call {
        let keep = "INSERT INTO system_job_calls (id, sealed) VALUES ($1, $2)";
        db.execute_typed(keep, args![row.id, call.sealed]).await?;
    }
    Ok(Accepted::Added)
}

pub(super) fn strings(rows: &[Row]) -> Outcome<Vec<String>> {
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) fn job(row: &Row) -> Outcome<JobRow> {
    let time = |index: usize| {
        row.try_get::<_, Option<i64>>(index)
            .map(|micros| micros.map(Timestamp))
    };
    Ok(JobRow {
        id: row.try_get(0)?,
        tenant: row.try_get(1)?,
        subject: row.try_get(2)?,
        pack: row.try_get(3)?,
        version: u32::try_from(row.try_get::<_, i64>(4)?).unwrap_or(0),
        state: row.try_get(5)?,
        owner: row.try_get(6)?,
        revision: unsigned(row.try_get(7)?),
        percent: row.try_get(8)?,
        message: row.try_get(9)?,
        progress_at: time(10)?,
        created_at: Timestamp(row.try_get(11)?),
        started_at: time(12)?,
        ended_at: time(13)?,
        expires_at: Timestamp(row.try_get(14)?),
        error: row.try_get(15)?,
        artifacts: row.try_get(16)?,
        kept: row.try_get(17)?,
        attempt: u32::try_from(row.try_get::<_, i64>(18)?).unwrap_or(1),
        retries: u32::try_from(row.try_get::<_, i64>(19)?).unwrap_or(0),
        due_at: time(20)?,
    })
}
