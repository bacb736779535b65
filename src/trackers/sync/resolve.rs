//! Conflicts: a person decides which value counts.

use std::collections::BTreeSet;

use helmdeck_forge::{Error, Project, Result};
use helmdeck_forge_documents::tracking::{Conflict, Field, Value};

use super::{remote_id, store::Store};
use crate::mapping::write_plain;

/// The value that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The value here; it is pushed.
    Ours,
    /// The value in the tracker.
    Theirs,
    /// Another value; it is pushed.
    Value(String),
}

/// Settles the conflict of a field. Asks no tracker.
///
/// # Errors
/// `NotFound` if there is no such conflict; `Usage` for a value that does not fit; errors from
/// writing.
pub fn resolve(project: &Project, key: &str, field: Field, choice: &Choice) -> Result<Conflict> {
    let store = Store::new(project.files());
    let issue = project.issues().show(key)?.item.issue;
    let found = store
        .state()?
        .conflicts
        .into_iter()
        .find(|one| issue.answers_to(&one.key) && one.field == field);
    let conflict = found.ok_or_else(|| {
        Error::not_found(format!("{key} has no conflict in the field {field}"))
            .next("helmdeck forge tracker status")
    })?;
    let value = match choice {
        Choice::Ours => conflict.ours.clone(),
        Choice::Theirs => conflict.theirs.clone(),
        Choice::Value(text) if field == Field::Priority => {
            let number = text.parse().ok().filter(|number: &u8| *number <= 4);
            Some(Value::Number(number.ok_or_else(|| {
                Error::usage("a priority is a number from 0 to 4")
            })?))
        }
        Choice::Value(text) if field == Field::Title && text.trim().is_empty() => {
            return Err(Error::usage("a title cannot be empty"));
        }
        Choice::Value(text) => Some(Value::Text(text.trim().to_owned())),
    };
    set(project, &issue.linear_id, |issue| {
        write_plain(issue, field, value.as_ref())
    })?;
    // From now on, the value in the tracker is the one that both sides had: another one here is
    // pushed.
    if let Some(base) = remote_id(&issue).and_then(|id| store.bases().ok()?.remove(id)) {
        let mut base = base;
        base.fields.set(field, conflict.theirs.clone());
        store.put_base(&base)?;
    }
    store.edit(|state| {
        state
            .conflicts
            .retain(|one| !(one.key == conflict.key && one.field == field))
    })?;
    Ok(conflict)
}

/// Gives fields of an issue the values back that both sides had last.
pub(super) fn undo(project: &Project, key: &str, fields: &BTreeSet<Field>) -> Result<()> {
    let issue = project.issues().show(key)?.item.issue;
    let Some(base) =
        remote_id(&issue).and_then(|id| Store::new(project.files()).bases().ok()?.remove(id))
    else {
        return Ok(());
    };
    set(project, &issue.linear_id, |issue| {
        for field in fields {
            match field {
                Field::Labels => issue.labels = base.fields.names(*field).into_iter().collect(),
                Field::BlockedBy => {
                    issue.blocked_by = base.fields.names(*field).into_iter().collect()
                }
                Field::Criteria => {
                    let items = base.fields.criteria();
                    issue
                        .acceptance_criteria
                        .retain(|one| items.iter().any(|item| item.text == one.text()));
                    for item in items {
                        let known = issue
                            .acceptance_criteria
                            .iter()
                            .position(|one| one.text() == item.text);
                        let made = crate::mapping::criterion(item, &issue.acceptance_criteria);
                        match known {
                            Some(at) => issue.acceptance_criteria[at] = made,
                            None => issue.acceptance_criteria.push(made),
                        }
                    }
                }
                _ => write_plain(issue, *field, base.fields.get(*field)),
            }
        }
    })
}

fn set(
    project: &Project,
    key: &str,
    change: impl FnOnce(&mut helmdeck_forge::issues::Issue),
) -> Result<()> {
    project.issues().apply(|active| {
        let issue = active
            .issues
            .iter_mut()
            .find(|issue| issue.linear_id == key);
        let issue =
            issue.ok_or_else(|| Error::refused(format!("{key} is closed: open it again first")))?;
        change(issue);
        Ok(())
    })
}
