//! Waiting operations: tried again, or dropped by a person.

use std::collections::BTreeSet;

use helmdeck_forge::issues::Issue;
use helmdeck_forge::{Json, Project, Result};
use helmdeck_forge_documents::tracking::{Dropped, Field, Operation, OperationKind, Outbox};

use super::store::Store;
use crate::mapping::is_local;

/// Maximum number of dropped operations that are remembered.
const MAX_DROPPED: usize = 50;

/// Sends failed operations again at the next push. All of them without an id. Returns how many.
///
/// The key of a local issue whose creation was dropped is an id too.
///
/// # Errors
/// `NotFound` for an unknown id; errors from writing.
pub fn retry(project: &Project, op_id: Option<&str>) -> Result<usize> {
    if let Some(key) = op_id.filter(|id| is_local(id)) {
        keep_here(project, key, false)?;
        return Ok(1);
    }
    let retried = Outbox::edit(project.files(), |waiting| {
        let chosen =
            waiting.iter_mut().filter(|one| op_id.map_or(one.attempts > 0 || one.stopped, |id| one.op_id == id));
        let mut count = 0;
        for one in chosen {
            (one.attempts, one.next_at, one.stopped, count) = (0, None, false, count + 1);
        }
        count
    })?;
    match (retried, op_id) {
        (0, Some(id)) => Err(unknown(id)),
        (count, _) => Ok(count),
    }
}

/// Drops an operation. Fields that it would have changed are taken from the tracker at the next pull.
///
/// A local issue whose creation is dropped stays here, until it is retried by its key.
///
/// # Errors
/// `NotFound` for an unknown id; errors from writing.
pub fn discard(project: &Project, op_id: &str, why: &str) -> Result<Operation> {
    let found = Outbox::read(project.files())?.waiting.into_iter().find(|one| one.op_id == op_id);
    let operation = found.ok_or_else(|| unknown(op_id))?;
    if operation.kind == OperationKind::Create {
        // Without this the next push would plan the same again.
        keep_here(project, &operation.issue, true)?;
    }
    if operation.kind == OperationKind::Update {
        // Without this the next push would plan the same again.
        let keep: BTreeSet<Field> = operation.patch.keys().copied().collect();
        super::resolve::undo(project, &operation.issue, &keep)?;
    }
    Outbox::edit(project.files(), |waiting| waiting.retain(|one| one.op_id != op_id))?;
    tracing::info!(op_id, issue = operation.issue, why, "a change for the tracker was dropped");
    Store::new(project.files()).edit(|state| {
        let at = project.environment().now().seconds();
        state.dropped.push(Dropped { op_id: op_id.to_owned(), key: operation.issue.clone(), why: why.to_owned(), at });
        let old = state.dropped.len().saturating_sub(MAX_DROPPED);
        state.dropped.drain(..old);
    })?;
    Ok(operation)
}

/// Member of `remote` of a local issue that the tracker is not to get.
const STAYS: &str = "stays_here";

pub(super) fn stays_here(issue: &Issue) -> bool {
    issue.remote.as_ref().is_some_and(|remote| remote.0.get(STAYS) == Some(&Json::Bool(true)))
}

/// Notes in a local issue whether the tracker is to get it.
fn keep_here(project: &Project, key: &str, stays: bool) -> Result<()> {
    let note = move |issue: &mut Issue| {
        let members = &mut issue.remote.get_or_insert_with(Default::default).0;
        if stays {
            members.insert(STAYS.to_owned(), Json::Bool(true));
        } else {
            members.shift_remove(STAYS);
        }
        issue.remote = issue.remote.take().filter(|remote| !remote.0.is_empty());
    };
    let is_active = project.issues().apply(|active| {
        let found = active.issues.iter_mut().find(|issue| issue.linear_id == key);
        Ok(found.map(note).is_some())
    })?;
    if is_active { Ok(()) } else { project.issues().amend_closed(key, note) }
}

fn unknown(id: &str) -> helmdeck_forge::Error {
    helmdeck_forge::Error::not_found(format!("no operation {id:?} waits")).next("helmdeck forge tracker outbox")
}
