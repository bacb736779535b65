//! Waiting operations: tried again, or given up by a person.

use std::collections::BTreeSet;

use helmdeck_forge::{Error, Project, Result};
use helmdeck_forge_documents::tracking::{Field, Operation, OperationKind, Outbox};

/// Tries failed operations again at the next push, without waiting. Returns how many.
///
/// # Errors
/// Errors from writing.
pub fn retry(project: &Project) -> Result<usize> {
    Outbox::edit(project.files(), |waiting| {
        let failed = waiting
            .iter_mut()
            .filter(|one| one.attempts > 0 || one.stopped);
        failed
            .map(|one| (one.next_at, one.stopped) = (None, false))
            .count()
    })
}

/// Gives up the changes and comments of an issue that wait, and returns them.
///
/// Its fields get the values back that both sides had last.
///
/// # Errors
/// `NotFound` for an unknown issue, and if nothing of it waits; errors from writing.
pub fn give_up(project: &Project, key: &str) -> Result<Vec<Operation>> {
    let issue = project.issues().show(key)?.item.issue;
    let is_its =
        |one: &Operation| one.kind != OperationKind::Create && issue.answers_to(&one.issue);
    let given_up: Vec<Operation> = Outbox::read(project.files())?
        .waiting
        .into_iter()
        .filter(is_its)
        .collect();
    if given_up.is_empty() {
        return Err(
            Error::not_found(format!("nothing of {key} waits for the tracker"))
                .next("helmdeck forge tracker status"),
        );
    }
    let fields: BTreeSet<Field> = given_up
        .iter()
        .flat_map(|one| one.patch.keys().copied())
        .collect();
    if !fields.is_empty() {
        // Without this the next push would plan the same again.
        super::resolve::undo(project, &issue.linear_id, &fields)?;
    }
    Outbox::edit(project.files(), |waiting| {
        waiting.retain(|one| !is_its(one))
    })?;
    tracing::info!(
        key,
        operations = given_up.len(),
        "changes for the tracker were given up"
    );
    Ok(given_up)
}
