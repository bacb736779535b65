//! `status`: where the work stands, on one screen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use helmdeck_forge_documents::tracking::{Outbox, SyncState};

use super::{Elsewhere, Work};
use crate::config::LinearMode;
use crate::error::Result;
use crate::features::{Features, Item as FeatureItem};
use crate::focus::Focus;
use crate::issues::{Issue, IssueCounts, Scope};
use crate::sessions::{Advice, Session, Sessions};
use crate::time::Time;

/// Where the work stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Why work is paused.
    pub paused: Option<String>,
    /// The caller's session, or else the primary one.
    pub session: Option<Session>,
    /// All sessions of this work tree, as the next start will see them.
    pub sessions: Vec<Session>,
    /// The focus.
    pub focus: Focus,
    /// The issue of the focus.
    pub issue: Option<Issue>,
    /// The feature of the focus, with its standing.
    pub feature: Option<FeatureItem>,
    /// The branch.
    pub branch: Option<String>,
    /// What is worked on in other work trees.
    pub elsewhere: Vec<Elsewhere>,
    /// The files that are not committed, outside of `.forge/`; `null` without git.
    pub changed: Option<ChangedFiles>,
    /// Number of issues by standing.
    pub issues: IssueCounts,
    /// What the sync with the tracker could not do; `null` if nothing is open, or there is no
    /// tracker.
    pub tracker: Option<TrackerTrouble>,
    /// Number of features by standing.
    pub features: crate::features::Counts,
    /// Why a checkpoint is due.
    pub checkpoint_advised: Option<Advice>,
    /// The command to run next.
    pub next: String,
}

/// What the sync with the tracker could not do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrackerTrouble {
    /// Number of changes that could not be delivered.
    pub outbox_failed: usize,
    /// Number of fields that were changed on both sides.
    pub conflicts: usize,
    /// Since when issues cannot be fetched.
    pub pull_failed: Option<Time>,
}

/// Files that are not committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFiles {
    /// Number of files.
    pub count: usize,
    /// The first files.
    pub files: Vec<String>,
}

/// Maximum number of files that are named.
const NAMED: usize = 10;

impl Work<'_> {
    /// Returns where the work stands. Changes nothing.
    ///
    /// # Errors
    /// `Corrupt`; errors from git.
    pub fn status(&self) -> Result<Status> {
        let project = self.project;
        let sessions = Sessions::new(project);
        let session = sessions.shown()?;
        let focus = self.focus()?;
        let issue = match &focus.linear_issue {
            Some(key) => self.issue(key)?,
            None => None,
        };
        let listed = Features::new(project).list()?;
        let feature = focus.feature_id.as_ref().and_then(|id| {
            listed
                .features
                .iter()
                .find(|item| item.feature.id == *id)
                .cloned()
        });
        let (mut branch, mut changed) = (None, None);
        if let Some(git) = project.repository()? {
            branch = git.branch()?;
            let status = git.status()?;
            let mut files: Vec<String> = status.outside(git.memory()).map(str::to_owned).collect();
            let count = files.len();
            files.truncate(NAMED);
            changed = Some(ChangedFiles { count, files });
        }
        let paused = project.check_not_paused().err().map(|error| error.message);
        let mut status = Status {
            paused,
            checkpoint_advised: sessions.advice()?,
            session,
            sessions: sessions.seen()?.sessions,
            focus,
            issue,
            feature,
            branch,
            elsewhere: self.elsewhere(),
            changed,
            issues: project.issues().list(Scope::Ready)?.counts,
            tracker: self.tracker_trouble(),
            features: listed.counts,
            next: String::new(),
        };
        status.next = next(&status).to_owned();
        Ok(status)
    }

    /// Returns what the sync could not do. What cannot be read counts as nothing: `health` and
    /// `doctor` report it.
    fn tracker_trouble(&self) -> Option<TrackerTrouble> {
        if self.project.config().linear.mode != LinearMode::Live {
            return None;
        }
        let files = self.project.files().reading();
        let outbox = Outbox::read(&files).unwrap_or_default();
        let state = files
            .load::<SyncState>()
            .ok()
            .flatten()
            .map(|loaded| loaded.value);
        let trouble = TrackerTrouble {
            outbox_failed: outbox.failed().count(),
            conflicts: state.as_ref().map_or(0, |state| state.conflicts.len()),
            pull_failed: state
                .and_then(|state| state.failure)
                .map(|failure| failure.since),
        };
        Some(trouble).filter(|trouble| *trouble != TrackerTrouble::default())
    }
}

/// Returns the command to run next.
fn next(status: &Status) -> &'static str {
    let dirty = status
        .changed
        .as_ref()
        .is_some_and(|changed| changed.count > 0);
    let works = status
        .feature
        .as_ref()
        .is_none_or(|item| item.standing.counts());
    if status.paused.is_some() {
        "helmdeck forge recover assess"
    } else if status.session.is_none() || status.focus.task.is_none() {
        let is_planned =
            status.issues.open > 0 || status.features.passing < status.features.counted;
        if is_planned {
            "helmdeck forge start"
        } else {
            "helmdeck forge start \"what you work on\""
        }
    } else if dirty && !works {
        "helmdeck forge verify"
    } else if dirty && status.feature.is_some() {
        "helmdeck forge done \"what was done\""
    } else if dirty {
        "helmdeck forge commit \"what was done\""
    } else if !works {
        "helmdeck forge verify"
    } else {
        "helmdeck forge done"
    }
}
