//! Sync of the issues of a project with a tracker: pull, push, conflicts.
//!
//! It compares states: what is here, what the tracker has, and what both had last. So it needs no
//! record of local changes, and whatever git merged in is a change like any other. The outbox holds
//! what is being delivered.

mod comments;
mod lock;
mod pull;
mod push;
mod resolve;
mod settle;
mod store;
mod waiting;

use std::collections::BTreeMap;

use helmdeck_forge::config::LinearConfig;
use helmdeck_forge::issues::{Issue, Scope};
use helmdeck_forge::{Json, Project};
use helmdeck_forge_documents::tracking::{
    Conflict, Failure, Field, Fields, Operation, Outbox, Value,
};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

pub use pull::{Pull, Pulled};
pub use push::{Delivered, Failed, Push, Pushed};
pub use resolve::{Choice, resolve};
pub use waiting::{give_up, retry};

use self::store::Store;
use crate::mapping::Mapping;
use crate::tracker::{Directory, Tracker};

/// The sync of one project with one tracker.
#[derive(Debug, Clone, Copy)]
pub struct Sync<'a> {
    project: &'a Project,
    tracker: &'a dyn Tracker,
}

impl<'a> Sync<'a> {
    /// Makes the sync of a project.
    #[must_use]
    pub const fn new(project: &'a Project, tracker: &'a dyn Tracker) -> Self {
        Self { project, tracker }
    }

    fn settings(&self) -> &'a LinearConfig {
        &self.project.config().linear
    }

    fn mapping<'b>(&self, directory: &'b Directory) -> Mapping<'b>
    where
        'a: 'b,
    {
        let mapping = Mapping::new(self.settings(), directory, self.tracker.fields());
        mapping.limited(self.tracker.max_description())
    }

    fn store(&self) -> Store<'a> {
        Store::new(self.project.files())
    }

    /// Pulls, then pushes.
    ///
    /// # Errors
    /// As [`Self::pull`] and [`Self::push`].
    pub async fn sync(&self, pull: &Pull) -> helmdeck_forge::Result<(Pulled, Pushed)> {
        let _lock = lock::take(self.project).await?;
        let pulled = self.pull_locked(pull).await?;
        let pushed = self
            .push_locked(&Push {
                dry_run: pull.dry_run,
            })
            .await?;
        Ok((pulled, pushed))
    }
}

/// A change of an issue, field by field.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct ChangedIssue {
    /// Its key.
    pub key: String,
    /// The fields.
    pub fields: BTreeMap<Field, FromTo>,
}

/// A value before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FromTo {
    /// Before.
    pub from: Option<Value>,
    /// After.
    pub to: Option<Value>,
}

impl ChangedIssue {
    /// Compares two sets of fields.
    fn between(key: &str, before: &Fields, after: &Fields) -> Self {
        let changed = |field: &Field| !crate::merge::same(before.get(*field), after.get(*field));
        let both = |field: Field| FromTo {
            from: before.get(field).cloned(),
            to: after.get(field).cloned(),
        };
        let fields = Field::ALL
            .into_iter()
            .filter(changed)
            .map(|field| (field, both(field)))
            .collect();
        Self {
            key: key.to_owned(),
            fields,
        }
    }
}

/// State of the sync, from the files of this clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Status {
    /// The tracker and team that were synchronised last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tracker: String,
    /// When issues were last read.
    pub pulled_at: Option<helmdeck_forge::Time>,
    /// Why reading fails, and since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Number of issues that have a counterpart in the tracker.
    pub tracked: usize,
    /// Keys of the issues that the tracker does not have yet.
    pub local: Vec<String>,
    /// Number of operations that wait.
    pub waiting: usize,
    /// Operations that somebody must look at.
    pub failed: Vec<Operation>,
    /// Fields that were changed on both sides.
    pub conflicts: Vec<Conflict>,
    /// Ids of the last deliveries of the webhook, the newest last.
    #[serde(skip)]
    pub deliveries: Vec<String>,
    /// Number of lines of the outbox that cannot be read.
    #[serde(skip_serializing_if = "is_zero")]
    pub damaged: usize,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Returns the state of the sync. Asks no tracker.
///
/// # Errors
/// `Corrupt` if a file is damaged.
pub fn status(project: &Project) -> helmdeck_forge::Result<Status> {
    let state = Store::new(project.files()).state()?;
    let outbox = Outbox::read(project.files())?;
    let mut issues = project.issues().read()?.issues;
    let closed = project
        .issues()
        .list(Scope::Done)?
        .issues
        .into_iter()
        .map(|item| item.issue);
    let unknown = closed.filter(|issue| crate::mapping::is_local(&issue.linear_id));
    let unknown: Vec<Issue> = unknown
        .filter(|one| !issues.iter().any(|issue| issue.linear_id == one.linear_id))
        .collect();
    issues.extend(unknown);
    let (tracked, local): (Vec<_>, Vec<_>) = issues
        .into_iter()
        .partition(|issue| remote_id(issue).is_some());
    Ok(Status {
        tracker: state.tracker,
        pulled_at: state.pulled_at,
        failure: state.failure,
        tracked: tracked.len(),
        local: local.into_iter().map(|issue| issue.linear_id).collect(),
        waiting: outbox.waiting.len(),
        failed: outbox
            .failed()
            .map(|one| Operation {
                issue: one.key(),
                ..one.clone()
            })
            .collect(),
        conflicts: state.conflicts,
        damaged: outbox.damaged.len(),
        deliveries: state.deliveries,
    })
}

/// Remembers the deliveries of the webhook in this clone.
///
/// # Errors
/// Errors from writing.
pub fn remember_deliveries(
    project: &Project,
    deliveries: Vec<String>,
) -> helmdeck_forge::Result<()> {
    Store::new(project.files()).edit(|state| state.deliveries = deliveries)
}

/// Returns the id of an issue in the tracker.
pub(crate) fn remote_id(issue: &Issue) -> Option<&str> {
    remote_text(issue, "id")
}

fn remote_text<'a>(issue: &'a Issue, name: &str) -> Option<&'a str> {
    match issue.remote.as_ref()?.0.get(name)? {
        Json::String(text) => Some(text),
        _ => None,
    }
}

/// Returns the id that a local issue gets in the tracker.
///
/// It is the same in every clone: two clones that push the same issue make one.
pub(crate) fn creation_id(team: &str, issue: &Issue) -> Uuid {
    let at = issue
        .created_at
        .map_or_else(|| issue.title.clone(), |at| at.to_string());
    let text = format!("helmdeck issue\n{team}\n{}\n{at}", issue.stem());
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_ref()[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests;
