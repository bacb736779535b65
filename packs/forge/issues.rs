//! `forge.issue_*`: issues.

use helmdeck_forge::Project;
use helmdeck_forge::error::Error;
use helmdeck_forge::issues::{
    Add, CANCELLED, Changed, Counts, DONE, Done as Close, Edit, Item, NewComment, Scope, Shown,
};
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
    Ok(Listed {
        counts: listed.counts,
        total,
        issues,
    })
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
    anyway: Option<String>,
    #[serde(flatten)]
    edit: Edit,
}

/// An issue that was changed, with its summary if it was closed.
#[derive(Serialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    changed: Changed,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
}

pub(super) fn set(project: &Project, input: Set) -> Done<Outcome> {
    let issues = project.issues();
    let Set {
        key,
        if_match,
        comment,
        anyway,
        mut edit,
    } = input;
    let closing = edit
        .state
        .take_if(|state| *state == DONE || *state == CANCELLED);
    if closing.is_none() && anyway.is_some() {
        return Err(Error::usage(
            "\"anyway\" is a reason for closing an issue: state = \"Done\"",
        ));
    }
    let mut changed = issues.set(&key, &edit, if_match.as_deref())?;
    if let Some(text) = comment {
        let warnings = changed.warnings;
        changed = Changed {
            warnings,
            ..issues.comment(&key, &NewComment { text, by: None })?
        };
    }
    let Some(state) = closing else {
        return Ok(Outcome {
            changed,
            summary: None,
        });
    };
    let close = Close {
        anyway,
        cancelled: state == CANCELLED,
        ..Close::default()
    };
    let record = issues.done(&key, &close, None)?.record;
    let etag = issues.show(&key)?.etag;
    Ok(Outcome {
        changed: Changed {
            etag,
            issue: record.issue,
            ..changed
        },
        summary: Some(record.summary),
    })
}
