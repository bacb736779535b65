//! Stored form of jobs and results: rows, and sealed bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::numbers::micros;
use helmdeck_core::outcome::Remark;
use helmdeck_core::{
    ArtifactRef, CacheInfo, CacheStatus, Identity, Json, Outcome, PackName, Version,
};
use helmdeck_memory::{KeyRing, Namespace};
use helmdeck_system::jobs::JobRow;
use serde::{Deserialize, Serialize};

use super::{Job, JobError, JobId, JobProgress, JobSchedule, JobState};

/// Purpose of the seal of results.
const PURPOSE: &str = "job";

/// Location of a job's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum ResultLocation {
    /// None, or none yet.
    None,
    /// In the row, sealed with the memory key.
    Sealed,
    /// In the memory of the process that ran it.
    Memory,
    /// Not kept: it was too large.
    Large,
}

impl ResultLocation {
    const ALL: [Self; 4] = [Self::None, Self::Sealed, Self::Memory, Self::Large];

    fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Encodes a job as a row of its owner process.
///
/// `retries` is only for new rows: it never changes.
pub(super) fn to_row(job: &Job, owner: &str, kept: ResultLocation, retries: u32) -> JobRow {
    let progress = job.progress.as_ref();
    JobRow {
        id: job.id.to_string(),
        tenant: job.tenant.clone(),
        subject: job.user.clone(),
        pack: job.pack.to_string(),
        version: job.version.number(),
        state: job.state.as_str().to_owned(),
        owner: owner.to_owned(),
        revision: job.revision,
        percent: progress
            .and_then(|progress| progress.percent)
            .map(f64::from),
        message: progress.map(|progress| progress.message.clone()),
        progress_at: progress.map(|progress| progress.at),
        created_at: job.created_at,
        started_at: job.started_at,
        ended_at: job.ended_at,
        expires_at: job.expires_at,
        error: job.error.as_ref().map(JobError::to_document),
        // Plain data: writing it to memory cannot fail.
        artifacts: (!job.artifacts.is_empty())
            .then(|| serde_json::to_string(&job.artifacts).unwrap_or_default()),
        kept: kept.as_str().to_owned(),
        attempt: job.attempt.unwrap_or(1),
        retries,
        due_at: job.schedule.map(|schedule| schedule.due_at),
    }
}

/// Decodes a row; `None` if it is malformed.
pub(super) fn of_row(row: JobRow) -> Option<(Job, ResultLocation)> {
    let state = JobState::parse(&row.state)?;
    let kept = ResultLocation::ALL
        .into_iter()
        .find(|kept| kept.as_str() == row.kept)?;
    if state.is_final() != row.ended_at.is_some()
        || (state == JobState::Failed) != row.error.is_some()
    {
        return None;
    }
    let progress = match (row.progress_at, row.message) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it was an f32 when it was written"
        )]
        (Some(at), Some(message)) => Some(JobProgress {
            percent: row.percent.map(|percent| percent as f32),
            message,
            at,
        }),
        _ => None,
    };
    let job = Job {
        id: JobId::parse(&row.id).ok()?,
        pack: PackName::new(&row.pack).ok()?,
        version: Version::new(row.version)?,
        tenant: row.tenant,
        user: row.subject,
        state,
        progress,
        created_at: row.created_at,
        started_at: row.started_at,
        ended_at: row.ended_at,
        expires_at: row.expires_at,
        error: row
            .error
            .map(|text| JobError::of_document(&text).ok_or(()))
            .transpose()
            .ok()?,
        // Only the process that ran the job knows whether a result in memory still exists.
        has_result: kept == ResultLocation::Sealed,
        artifacts: row
            .artifacts
            .map_or(Ok(Vec::new()), |text| serde_json::from_str(&text))
            .ok()?,
        attempt: (row.retries > 0).then_some(row.attempt),
        schedule: row.due_at.map(|due_at| JobSchedule { due_at }),
        revision: row.revision,
    };
    Some((job, kept))
}

/// An outcome without its output.
#[derive(Serialize, Deserialize)]
struct OutcomeHead {
    pack: PackName,
    version: Version,
    artifacts: Vec<ArtifactRef>,
    duration_us: u64,
    session_id: Option<String>,
    cache: Option<Cache>,
}

#[derive(Serialize, Deserialize)]
struct Cache {
    status: String,
    age_us: u64,
    ttl_us: u64,
    key: [u8; 8],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_kept: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<u64>,
}

/// Encodes an outcome: a line of JSON, then its output byte for byte.
pub(super) fn write(outcome: &Outcome) -> Vec<u8> {
    let head = OutcomeHead {
        pack: outcome.pack.clone(),
        version: outcome.version,
        artifacts: outcome.artifacts.to_vec(),
        duration_us: micros(outcome.duration),
        session_id: outcome.session_id.as_deref().map(str::to_owned),
        cache: outcome.cache.map(|cache| Cache {
            status: cache.status.as_str().to_owned(),
            age_us: micros(cache.age),
            ttl_us: micros(cache.ttl),
            key: cache.key,
            store_error: cache.store_error.map(str::to_owned),
            reason: cache.reason.map(str::to_owned),
            not_kept: cache.not_kept.map(|why| why.text().into_owned()),
            retry_after_us: cache.retry_after.map(micros),
        }),
    };
    // Plain data: writing it to memory cannot fail.
    let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(outcome.output.bytes());
    bytes
}

/// Decodes an outcome of [`write`]; `None` if it is malformed.
pub(super) fn read(bytes: Vec<u8>) -> Option<Outcome> {
    let bytes = Bytes::from(bytes);
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: OutcomeHead = serde_json::from_slice(&bytes[..end]).ok()?;
    let cache = match head.cache {
        None => None,
        Some(cache) => Some(CacheInfo {
            status: CacheStatus::ALL
                .into_iter()
                .find(|status| status.as_str() == cache.status)?,
            age: Duration::from_micros(cache.age_us),
            ttl: Duration::from_micros(cache.ttl_us),
            key: cache.key,
            store_error: cache.store_error.and_then(|word| {
                CacheInfo::STORE_ERRORS
                    .into_iter()
                    .find(|known| **known == word)
            }),
            reason: cache
                .reason
                .and_then(|word| CacheInfo::REASONS.into_iter().find(|known| **known == word)),
            not_kept: cache
                .not_kept
                .and_then(|why| helmdeck_core::NotKept::parse(&why, helmdeck_core::leaks::rule)),
            retry_after: cache.retry_after_us.map(Duration::from_micros),
        }),
    };
    Some(Outcome {
        pack: head.pack,
        version: head.version,
        output: Json::parse(bytes.slice(end + 1..)).ok()?,
        artifacts: head.artifacts.into(),
        duration: Duration::from_micros(head.duration_us),
        session_id: head.session_id.map(Arc::from),
        cache,
        pending: false,
        remark: Remark::default(),
    })
}

/// Seals an encoded outcome for a job of a caller.
pub(super) fn seal(
    ring: &KeyRing,
    identity: &Identity,
    id: &JobId,
    plain: &[u8],
) -> Option<Vec<u8>> {
    ring.seal_blob(
        &Namespace::of_caller(identity),
        PURPOSE,
        id.as_str().as_bytes(),
        plain,
    )
    .ok()
}

/// Opens the result of a job.
pub(super) fn open(ring: &KeyRing, job: &Job, sealed: &[u8]) -> Option<Outcome> {
    let namespace = Namespace::new(&job.tenant, &job.user, None);
    read(
        ring.open_blob(&namespace, PURPOSE, job.id.as_str().as_bytes(), sealed)
            .ok()?,
    )
}
