//! Pull: reads what changed in the tracker since the last time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use helmdeck_forge::{Result, Time};
use helmdeck_forge_documents::tracking::Failure;
use schemars::JsonSchema;
use serde::Serialize;

use super::comments::Comments;
use super::{ChangedIssue, Sync, is_zero, lock};
use crate::error::{Error, Kind};
use crate::tracker::{Directory, Issue, StateKind};

/// Maximum number of pages of one pull.
pub(super) const MAX_PAGES: usize = 200;
/// Maximum number of closed issues of one pull whose commits are asked for.
const MAX_CLOSING: usize = 50;
/// How far a pull reads back behind what it has seen, because changes become visible out of order.
pub(super) const OVERLAP: Duration = Duration::from_secs(120);

/// Request to pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pull {
    /// Whether everything open and known is read, not only what changed.
    pub full: bool,
    /// Only these issues, by their ids in the tracker.
    pub only: Option<Vec<String>>,
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// Result of a pull.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Pulled {
    /// Whether nothing was written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Number of issues that were read.
    pub read: usize,
    /// Keys of new issues.
    pub added: Vec<String>,
    /// Issues that changed here.
    pub changed: Vec<ChangedIssue>,
    /// Issues with another key: the old one and the new one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<(String, String)>,
    /// Issues that were completed in the tracker and are in the history now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<String>,
    /// Issues that were opened again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reopened: Vec<String>,
    /// Number of comments that were added, changed or removed here.
    #[serde(skip_serializing_if = "is_zero")]
    pub comments: usize,
    /// Number of fields that were changed on both sides, to different values.
    pub conflicts: usize,
    /// What could not be done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

pub(super) struct Batch {
    directory: Directory,
    pub(super) issues: Vec<Issue>,
    watermark: Option<Time>,
    comments: Comments,
    warnings: Vec<String>,
}

impl Sync<'_> {
    /// Reads what changed in the tracker, and merges it in.
    ///
    /// A failure on any page discards the whole batch.
    ///
    /// # Errors
    /// The errors of the tracker; `Locked`, `Corrupt`; errors from writing.
    pub async fn pull(&self, pull: &Pull) -> Result<Pulled> {
        let _lock = lock::take(self.project).await?;
        self.pull_locked(pull).await
    }

    pub(super) async fn pull_locked(&self, pull: &Pull) -> Result<Pulled> {
        self.project.check_not_paused()?;
        let now = self.project.environment().now();
        let batch = match self.read(pull, now).await {
            Ok(batch) => batch,
            Err(error) => {
                if !pull.dry_run {
                    self.note_failure(Some(&error), now)?;
                }
                return Err(error.into());
            }
        };
        let mapping = self.mapping(&batch.directory);
        let outcome = self.settle(
            &mapping,
            &batch.directory.team,
            &batch.issues,
            HashMap::new(),
            pull.dry_run,
        )?;
        let comments = self.settle_comments(&mapping, &batch.comments, pull.dry_run)?;
        if !pull.dry_run {
            let tracker = self.identity(&batch.directory);
            self.store().edit(|state| {
                state.failure = None;
                state.tracker = tracker;
                state.pulled_at = Some(now.seconds());
                if pull.only.is_none() {
                    state.watermark = batch.watermark;
                    state.comments_watermark = batch.comments.watermark;
                }
            })?;
        }
        let mut pulled = Pulled {
            dry_run: pull.dry_run,
            read: batch.issues.len(),
            comments,
            renamed: outcome.renamed,
            closed: outcome.closed,
            reopened: outcome.reopened,
            warnings: batch.warnings.into_iter().chain(outcome.warnings).collect(),
            ..Pulled::default()
        };
        for one in outcome.settled {
            pulled.conflicts += one.merged.conflicts.len();
            if one.is_new {
                pulled.added.push(one.key);
            } else if !one.change.fields.is_empty() {
                pulled.changed.push(one.change);
            }
        }
        Ok(pulled)
    }

    /// Notes that reading failed, or works again.
    pub(super) fn note_failure(&self, error: Option<&Error>, now: Time) -> Result<()> {
        self.store().edit(|state| {
            state.failure = error.map(|error| {
                let since = state
                    .failure
                    .as_ref()
                    .map_or_else(|| now.seconds(), |failure| failure.since);
                Failure {
                    since,
                    error: error.message.clone(),
                }
            });
        })
    }

    /// Names the tracker and the team.
    pub(super) fn identity(&self, directory: &Directory) -> String {
        format!("{} {}", self.tracker.name(), directory.team)
    }

    async fn read(&self, pull: &Pull, now: Time) -> Result<Batch, Error> {
        let failed = |error: helmdeck_forge::Error| Error::new(Kind::Settings, error.message);
        let directory = self.tracker.identify().await?;
        let state = self.store().state().map_err(failed)?;
        let is_known = !pull.full && state.tracker == self.identity(&directory);
        let since = state.watermark.filter(|_| is_known);
        let commented = state.comments_watermark.filter(|_| is_known);
        let (issues, warnings, comments) = (Vec::new(), Vec::new(), Comments::default());
        let mut batch = Batch {
            directory,
            issues,
            watermark: since,
            comments,
            warnings,
        };
        if let Some(ids) = &pull.only {
            batch.issues = self.tracker.fetch(ids).await?;
            batch.comments = self.read_comments(pull, &batch, commented).await?;
            self.read_closing(&mut batch).await?;
            return Ok(batch);
        }
        let mut cursor: Option<String> = None;
        for page in 1.. {
            let read = self.tracker.changed(since, cursor.as_deref()).await?;
            batch.issues.extend(read.issues);
            cursor = read.next;
            if cursor.is_none() {
                break;
            }
            if page == MAX_PAGES {
                let message = format!(
                    "{} has more than {MAX_PAGES} pages of changed issues",
                    self.tracker.name()
                );
                return Err(Error::new(Kind::TooLarge, message));
            }
        }
        // A time in the future would hide every change until then. The tracker's clock counts, not
        // the one here.
        let latest = self.tracker.now().unwrap_or(now);
        let newest = batch
            .issues
            .iter()
            .filter_map(|issue| issue.updated_at)
            .max()
            .map(|newest| newest.min(latest));
        let seen = newest
            .and_then(|newest| newest.0.checked_sub(OVERLAP).ok())
            .map(Time);
        batch.watermark = since.max(seen);
        if since.is_none() {
            self.read_known(&mut batch).await?;
        }
        // An issue may be on two pages if it changed meanwhile: the first one is newer.
        let mut ids = HashSet::new();
        batch.issues.retain(|issue| ids.insert(issue.id.clone()));
        batch.comments = self.read_comments(pull, &batch, commented).await?;
        self.read_closing(&mut batch).await?;
        Ok(batch)
    }

    /// Reads which commits closed issues that are active here.
    async fn read_closing(&self, batch: &mut Batch) -> Result<(), Error> {
        let failed = |error: helmdeck_forge::Error| Error::new(Kind::Settings, error.message);
        let active = self.project.issues().read().map_err(failed)?.issues;
        let known: HashSet<&str> = active.iter().filter_map(super::remote_id).collect();
        let closed = batch.issues.iter_mut().filter(|issue| {
            issue.state.kind == StateKind::Completed && known.contains(issue.id.as_str())
        });
        for issue in closed.take(MAX_CLOSING) {
            match self.tracker.closed_by(issue).await {
                Ok(commit) => issue.closed_by = commit,
                // It is good to know, and no reason to keep the issue open here.
                Err(error) => {
                    tracing::debug!(key = issue.key, %error, "the commit that closed it is not known")
                }
            }
        }
        Ok(())
    }

    /// Reads the known issues that are not in the batch: completed, archived, or in another team.
    async fn read_known(&self, batch: &mut Batch) -> Result<(), Error> {
        let failed = |error: helmdeck_forge::Error| Error::new(Kind::Settings, error.message);
        let read: HashSet<&str> = batch.issues.iter().map(|issue| issue.id.as_str()).collect();
        let known = self.project.issues().read().map_err(failed)?.issues;
        let missing: Vec<(String, String)> = known
            .iter()
            .filter_map(|issue| {
                Some((super::remote_id(issue)?.to_owned(), issue.linear_id.clone()))
            })
            .filter(|(id, _)| !read.contains(id.as_str()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = missing.iter().map(|(id, _)| id.clone()).collect();
        let found = self.tracker.fetch(&ids).await?;
        for (id, key) in missing {
            if !found.iter().any(|issue| issue.id == id) {
                // Unknown is not gone: the key may not see it.
                batch.warnings.push(format!(
                    "{key} is not visible in {} any more; it stays here",
                    self.tracker.name()
                ));
            }
        }
        batch.issues.extend(found);
        Ok(())
    }
}
