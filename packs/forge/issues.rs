//! `forge.issue_*`: issues.

use helmdeck_forge::Project;
use helmdeck_forge::issues::{Add, Changed, Counts, Done as Close, Edit, Item, NewComment, Scope, Shown};
use serde::{Deserialize, Serialize};

use super::place::Done;

/// Default number of issues in a list.
const LISTED: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    #[serde(default)]
    scope: Scope,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Listed {
    counts: Counts,
    /// Number of issues that match, including those beyond the limit.
    total: usize,
    issues: Vec<Item>,
}

pub(super) fn list(project: &Project, input: List) -> Done<Listed> {
    let listed = project.issues().list(input.scope)?;
    let mut issues = listed.issues;
    let total = issues.len();
    issues.truncate(input.limit.unwrap_or(LISTED));
    Ok(Listed { counts: listed.counts, total, issues })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    key: String,
}

pub(super) fn show(project: &Project, input: Named) -> Done<Shown> {
    project.issues().show(&input.key)
}

pub(super) fn add(project: &Project, input: Add) -> Done<Changed> {
    project.issues().add(&input)
}

#[derive(Deserialize)]
pub(super) struct Set {
    key: String,
    if_match: Option<String>,
    comment: Option<String>,
    #[serde(flatten)]
    edit: Edit,
}

pub(super) fn set(project: &Project, input: Set) -> Done<Changed> {
    let issues = project.issues();
    let changed = issues.set(&input.key, &input.edit, input.if_match.as_deref())?;
    match input.comment {
        None => Ok(changed),
        Some(text) => {
            let commented = issues.comment(&input.key, &NewComment { text, by: None })?;
            Ok(Changed { warnings: changed.warnings, ..commented })
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Closing {
    key: String,
    #[serde(flatten)]
    done: Close,
}

#[derive(Serialize)]
pub(super) struct Closed {
    key: String,
    again: bool,
    path: String,
    summary: String,
}

pub(super) fn done(project: &Project, input: Closing) -> Done<Closed> {
    let closed = project.issues().done(&input.key, &input.done, None)?;
    Ok(Closed { key: closed.key, again: closed.again, path: closed.path, summary: closed.record.summary })
}
