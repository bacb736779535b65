//! Jobs. The owner of a job is a lock that its process holds.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::Result;
use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::{Sqlite, empty_log, locks};
use crate::driver::JobRows;
use crate::jobs::{EndedJob, JobFilter, JobRow, LostErrors, LostJobs};

const COLUMNS: &str = "id, tenant, subject, pack, version, state, owner, revision, percent, message, progress_at, created_at, \
                       started_at, ended_at, expires_at, error, artifacts, kept, attempt, retries, due_at";

#[async_trait]
impl JobRows for Sqlite {
    async fn add_job(&self, row: JobRow, limit: u64) -> Result<bool> {
        self.0.write(move |db| insert(db, &row, limit)).await
    }

    async fn save_jobs(
        &self,
        owner: Arc<str>,
        rows: Vec<(JobRow, Option<Vec<u8>>)>,
    ) -> Result<bool> {
        self.0
            .write(move |db| {
                let mut save = db.prepare_cached(
                    "UPDATE jobs SET state = :state, revision = :revision, percent = :percent, message = :message,
                 progress_at = :progress_at, started_at = :started_at, ended_at = :ended_at, expires_at = :expires_at,
                 error = :error, artifacts = :artifacts, kept = :kept, result = :result
                 WHERE id = :id AND owner = :owner AND revision < :revision AND ended_at IS NULL",
                )?;
                for (row, result) in &rows {
                    save.execute(named_params! {
                        ":id": row.id, ":owner": owner.as_ref(), ":state": row.state, ":revision": signed(row.revision),
                        ":percent": row.percent, ":message": row.message,
                        ":progress_at": row.progress_at.map(Timestamp::micros),
                        ":started_at": row.started_at.map(Timestamp::micros),
                        ":ended_at": row.ended_at.map(Timestamp::micros), ":expires_at": row.expires_at.micros(),
                        ":error": row.error, ":artifacts": row.artifacts, ":kept": row.kept, ":result": result,
                    })?;
                }
                Ok(true)
            })
            .await
    }

    async fn end_job(&self, EndedJob { row, sealed }: EndedJob) -> Result<()> {
        let ended = self.0.read(move |db| {
            let mut end = db.prepare_cached(
                "UPDATE jobs SET state = :state, revision = max(revision + 1, :revision), started_at = :started_at,
                 ended_at = :ended_at, expires_at = :expires_at, error = :error, artifacts = :artifacts, kept = :kept,
                 result = :result
                 WHERE id = :id AND owner = :owner AND ended_at IS NULL",
            )?;
            end.execute(named_params! {
                ":id": row.id, ":owner": row.owner, ":state": row.state, ":revision": signed(row.revision),
                ":started_at": row.started_at.map(Timestamp::micros), ":ended_at": row.ended_at.map(Timestamp::micros),
                ":expires_at": row.expires_at.micros(), ":error": row.error, ":artifacts": row.artifacts,
                ":kept": row.kept, ":result": sealed,
            })?;
            Ok(())
        });
        ended.await.map(drop)
    }

    async fn job(&self, id: String, now: Timestamp) -> Result<Option<JobRow>> {
        let found = self.0.read(move |db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM jobs WHERE id = ?1 AND (ended_at IS NULL OR expires_at > ?2)"
            );
            Ok(db
                .prepare_cached(&sql)?
                .query_row((&id, now.micros()), read)
                .optional()?)
        });
        Ok(found.await?.flatten())
    }

    async fn job_result(&self, id: String) -> Result<Option<Vec<u8>>> {
        let found = self.0.read(move |db| {
            let mut find = db.prepare_cached("SELECT result FROM jobs WHERE id = ?1")?;
            Ok(find
                .query_row([&id], |row| row.get::<_, Option<Vec<u8>>>(0))
                .optional()?)
        });
        Ok(found.await?.flatten().flatten())
    }

    async fn gone_jobs(&self, ids: Vec<String>) -> Result<Vec<String>> {
        // Ids are hexadecimal digits.
        let asked = format!(
            "[{}]",
            ids.iter()
                .map(|id| format!("\"{id}\""))
                .collect::<Vec<_>>()
                .join(",")
        );
        let found = self.0.read(move |db| {
            let mut gone = db.prepare_cached(
                "SELECT value FROM json_each(?1) WHERE value NOT IN (SELECT id FROM jobs)",
            )?;
            Ok(gone
                .query_map([&asked], |row| row.get(0))?
                .collect::<Result<_, _>>()?)
        });
        // Without a database there is no row.
        Ok(found.await?.unwrap_or(ids))
    }

    async fn jobs(&self, filter: JobFilter, limit: usize, now: Timestamp) -> Result<Vec<JobRow>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = self.0.read(move |db| {
            let whose = if filter.caller.is_some() { "tenant = :tenant AND subject = :subject AND" } else { "" };
            let mut all = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM jobs WHERE {whose} (ended_at IS NULL OR expires_at > :now)
                 AND state = coalesce(:state, state) AND id < coalesce(:before, 'z') ORDER BY id DESC LIMIT :limit"
            ))?;
            let (state, before, now) = (&filter.state, &filter.before, now.micros());
            let rows = match &filter.caller {
                Some((tenant, subject)) => all.query_map(
                    named_params! {":tenant": tenant, ":subject": subject, ":now": now, ":state": state,
                    ":before": before, ":limit": limit},
                    read,
                )?,
                None => all.query_map(
                    named_params! {":now": now, ":state": state, ":before": before, ":limit": limit},
                    read,
                )?,
            };
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn ask_to_cancel_job(&self, id: String, _: Timestamp, _: Timestamp) -> Result<bool> {
        let asked = self.0.read(move |db| {
            let mut ask = db.prepare_cached(
                "UPDATE jobs SET cancel = TRUE WHERE id = ?1 AND ended_at IS NULL",
            )?;
            Ok(ask.execute([&id])?)
        });
        Ok(asked.await?.unwrap_or(0) > 0)
    }

    async fn jobs_to_cancel(&self, owner: String) -> Result<Vec<String>> {
        let found = self.0.read(move |db| {
            let mut all = db.prepare_cached(
                "SELECT id FROM jobs WHERE owner = ?1 AND ended_at IS NULL AND cancel",
            )?;
            Ok(all
                .query_map([&owner], |row| row.get(0))?
                .collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn end_lost_jobs(
        &self,
        errors: LostErrors,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<LostJobs> {
        let folder = self.locks();
        let ended = self.0.read(move |db| {
            let owners: Vec<String> = db
                .prepare_cached("SELECT DISTINCT owner FROM jobs WHERE ended_at IS NULL")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let mut ended = 0;
            for owner in owners {
                let Some(gone) = locks::gone(&folder, &owner) else { continue };
                ended += db
                    .prepare_cached(
                        "UPDATE jobs SET state = 'failed', error = ?2, ended_at = ?3, expires_at = ?4, kept = 'none',
                         revision = revision + 1 WHERE owner = ?1 AND ended_at IS NULL",
                    )?
                    .execute((&owner, &errors.stopped, now.micros(), expires_at.micros()))?;
                gone.remove();
            }
            Ok(ended as u64)
        });
        // No input is stored, so nothing can be run again.
        Ok(LostJobs {
            failed: ended.await?.unwrap_or(0),
            queued: 0,
        })
    }

    async fn forget_ended_jobs(&self, tenant: String, subject: String) -> Result<(u64, u64)> {
        let forgotten = self.0.read(move |db| {
            let gone = db
                .prepare_cached(
                    "DELETE FROM jobs WHERE tenant = ?1 AND subject = ?2 AND ended_at IS NOT NULL",
                )?
                .execute((&tenant, &subject))?;
            if gone > 0 {
                empty_log(db)?;
            }
            let live: i64 = db
                .prepare_cached("SELECT count(*) FROM jobs WHERE tenant = ?1 AND subject = ?2")?
                .query_row((&tenant, &subject), |row| row.get(0))?;
            Ok((gone as u64, unsigned(live)))
        });
        Ok(forgotten.await?.unwrap_or((0, 0)))
    }
}

/// Writes a new job, unless its caller has `limit` unfinished jobs. The caller's oldest ended jobs
/// make room.
pub(super) fn insert(db: &Connection, row: &JobRow, limit: u64) -> Result<bool> {
    let limit = signed(limit);
    let (all, live): (i64, i64) = db
        .prepare_cached(
            "SELECT count(*), coalesce(sum(ended_at IS NULL), 0) FROM jobs WHERE tenant = ?1 AND subject = ?2",
        )?
        .query_row((&row.tenant, &row.subject), |found| Ok((found.get(0)?, found.get(1)?)))?;
    if live >= limit {
        return Ok(false);
    }
    db.prepare_cached(
        "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE tenant = ?1 AND subject = ?2 AND ended_at IS NOT NULL
         ORDER BY id LIMIT ?3)",
    )?
    .execute((&row.tenant, &row.subject, (all + 1 - limit).max(0)))?;
    db.prepare_cached(&format!(
        "INSERT INTO jobs ({COLUMNS}) VALUES (:id, :tenant, :subject, :pack, :version, :state, :owner, :revision,
         :percent, :message, :progress_at, :created_at, :started_at, :ended_at, :expires_at, :error, :artifacts, :kept,
         :attempt, :retries, :due_at)"
    ))?
    .execute(named_params! {
        ":id": row.id, ":tenant": row.tenant, ":subject": row.subject, ":pack": row.pack, ":version": row.version,
        ":state": row.state, ":owner": row.owner, ":revision": signed(row.revision), ":percent": row.percent,
        ":message": row.message, ":progress_at": row.progress_at.map(Timestamp::micros),
        ":created_at": row.created_at.micros(), ":started_at": row.started_at.map(Timestamp::micros),
        ":ended_at": row.ended_at.map(Timestamp::micros), ":expires_at": row.expires_at.micros(),
        ":error": row.error, ":artifacts": row.artifacts, ":kept": row.kept, ":attempt": row.attempt,
        ":retries": row.retries, ":due_at": row.due_at.map(Timestamp::micros),
    })?;
    Ok(true)
}

fn read(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let time = |name: &str| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(name)?.map(Timestamp))
    };
    Ok(JobRow {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        subject: row.get("subject")?,
        pack: row.get("pack")?,
        version: row.get("version")?,
        state: row.get("state")?,
        owner: row.get("owner")?,
        revision: unsigned(row.get("revision")?),
        percent: row.get("percent")?,
        message: row.get("message")?,
        progress_at: time("progress_at")?,
        created_at: Timestamp(row.get("created_at")?),
        started_at: time("started_at")?,
        ended_at: time("ended_at")?,
        expires_at: Timestamp(row.get("expires_at")?),
        error: row.get("error")?,
        artifacts: row.get("artifacts")?,
        kept: row.get("kept")?,
        attempt: row.get("attempt")?,
        retries: row.get("retries")?,
        due_at: time("due_at")?,
    })
}
