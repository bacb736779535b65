//! What a job is to whoever looks at it.

use std::sync::Arc;

use helmdeck_core::clock::rfc3339;
use helmdeck_core::{ArtifactRef, Identity, PackName, Timestamp, Version};
use serde::{Deserialize, Serialize, Serializer};

use super::{JobError, JobId};

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Somebody wanted it to end, and it did.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// Returns the name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads a name, `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Says whether a job in this state changes no more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What a job said last.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobProgress {
    /// 0 to 100, if it knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<f32>,
    /// What it does; at most 500 bytes, empty if it said nothing.
    pub message: String,
    /// When it said so.
    #[serde(with = "rfc3339")]
    pub at: Timestamp,
}

/// A job, as it stood at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The pack.
    pub pack: PackName,
    /// The pack's version, fixed when the job was asked for.
    pub version: Version,
    /// The tenant of its caller.
    pub tenant: String,
    /// The user that is its caller.
    pub user: String,
    /// How far it is.
    pub state: JobState,
    /// What it said last; `None` = nothing yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<JobProgress>,
    /// When it was asked for.
    #[serde(with = "rfc3339")]
    pub created_at: Timestamp,
    /// When its call began.
    #[serde(serialize_with = "optional", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(serialize_with = "optional", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When it is forgotten; counted from its end, so it moves until then.
    #[serde(with = "rfc3339")]
    pub expires_at: Timestamp,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// Whether its result can be asked for. A job that succeeded may have none: asking says why.
    pub has_result: bool,
    /// The files that it wrote.
    pub artifacts: Vec<ArtifactRef>,
    /// The number of its last event: grows with every change.
    pub revision: u64,
}

impl Job {
    /// Says whether it is this caller's.
    #[must_use]
    pub fn is_of(&self, identity: &Identity) -> bool {
        !identity.is_anonymous() && (self.tenant.as_str(), self.user.as_str()) == (identity.tenant(), identity.user())
    }
}

#[expect(clippy::ref_option, reason = "the form that serde asks for")]
fn optional<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => rfc3339::serialize(time, serializer),
        None => serializer.serialize_none(),
    }
}

/// One change of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEvent {
    /// Its number; grows within a job, not always by one.
    pub number: u64,
    /// How the job stood then.
    pub job: Arc<Job>,
}

/// Which jobs are wanted.
#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    /// Only those in this state.
    pub state: Option<JobState>,
    /// Only those older than this one: the `next` of the page before.
    pub after: Option<JobId>,
    /// At most so many; 0 = 50, never more than 500.
    pub limit: usize,
}

impl JobQuery {
    /// Returns how many jobs a page has.
    pub(super) fn page(&self) -> usize {
        if self.limit == 0 { 50 } else { self.limit.min(500) }
    }
}

/// Jobs, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page goes on; `None` = this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
}
