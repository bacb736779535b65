//! Jobs as callers see them.

use std::sync::Arc;

use helmdeck_core::clock::rfc3339;
use helmdeck_core::{ArtifactRef, Identity, PackName, Timestamp, Version};
use serde::{Deserialize, Serialize};

use super::{JobError, JobId};

/// State of a job.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for its turn.
    Queued,
    /// Its call runs.
    Running,
    /// Its call has answered.
    Succeeded,
    /// Its call has failed, or its process has ended.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns the name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Parses a name; `None` if it is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Returns whether this state is final.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// Latest progress report of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobProgress {
    /// 0 to 100, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<f32>,
    /// Message of at most 500 bytes; may be empty.
    pub message: String,
    /// Time of the report.
    #[serde(with = "rfc3339")]
    pub at: Timestamp,
}

/// Snapshot of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The pack.
    pub pack: PackName,
    /// The pack's version, fixed when the job was submitted.
    pub version: Version,
    /// The tenant of its caller.
    pub tenant: String,
    /// The user that is its caller.
    pub user: String,
    /// Its state.
    pub state: JobState,
    /// Latest progress report; `None` = none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<JobProgress>,
    /// When it was submitted.
    #[serde(with = "rfc3339")]
    pub created_at: Timestamp,
    /// When its call began.
    #[serde(
        serialize_with = "rfc3339::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(
        serialize_with = "rfc3339::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub ended_at: Option<Timestamp>,
    /// When it is deleted. Counted from its end, so it moves until then.
    #[serde(with = "rfc3339")]
    pub expires_at: Timestamp,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// Whether its result can be read. A job that succeeded may have none: a read then says why.
    pub has_result: bool,
    /// Its artifacts.
    pub artifacts: Vec<ArtifactRef>,
    /// The number of this run of its call, from 1; `None` = its pack is not run again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The schedule that wanted it; `None` = a caller submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<JobSchedule>,
    /// Number of its latest event; grows with every change.
    pub revision: u64,
}

/// Why a schedule wanted a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JobSchedule {
    /// When it was due.
    #[serde(with = "rfc3339")]
    pub due_at: Timestamp,
}

impl Job {
    /// Returns whether it belongs to this caller.
    #[must_use]
    pub fn is_of(&self, identity: &Identity) -> bool {
        !identity.is_anonymous()
            && (self.tenant.as_str(), self.user.as_str()) == (identity.tenant(), identity.user())
    }
}

/// One change of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEvent {
    /// Its number; grows within a job, not always by one.
    pub number: u64,
    /// The job after the change.
    pub job: Arc<Job>,
}

/// Query of jobs.
#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    /// Only those in this state.
    pub state: Option<JobState>,
    /// Only those older than this one: the `next` of the previous page.
    pub after: Option<JobId>,
    /// Size of a page; 0 = 50, at most 500.
    pub limit: usize,
}

impl JobQuery {
    /// Returns the size of a page.
    pub(super) fn page(&self) -> usize {
        if self.limit == 0 {
            50
        } else {
            self.limit.min(500)
        }
    }
}

/// Page of jobs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Cursor of the next page; `None` = this is the last.
    pub next: Option<JobId>,
}
