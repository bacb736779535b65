//! What the sync hears of a local change, in the same locked write.

use super::{Comment, Issue};
use crate::config::LinearMode;
use crate::error::Result;
use crate::json::{Json, Members};
use crate::project::Project;
use helmdeck_forge_documents::tracking::{Operation, OperationKind, Outbox};
use sha2::{Digest as _, Sha256};

/// What kind of change it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// A new issue.
    Create,
    /// Fields of an issue changed; its state too.
    Update,
    /// A new comment.
    Comment,
}

/// A local change of one issue, for the outbox of a tracker.
#[derive(Debug, Clone, Copy)]
pub struct IssueChange<'a> {
    /// What kind of change it is.
    pub kind: ChangeKind,
    /// The issue before; `None` for a new one.
    pub before: Option<&'a Issue>,
    /// The issue now. One that was closed has the state `Done` here, and is in the history
    /// afterwards.
    pub after: &'a Issue,
    /// The new comment.
    pub comment: Option<&'a Comment>,
}

impl IssueChange<'_> {
    /// Returns the members that changed, with their new values. A member that is gone is `null`.
    #[must_use]
    pub fn patch(&self) -> Members {
        changed(self.before, Some(self.after), true)
    }

    /// Returns the members that changed, with their values before. A member that is new is `null`.
    #[must_use]
    pub fn base(&self) -> Members {
        changed(self.before, Some(self.after), false)
    }
}

/// Adds a comment to the outbox of the tracker, if one is configured.
///
/// It is called with the lock held, before the change is written: a change that is written is never
/// missing in the outbox. An error here refuses the change.
///
/// # Errors
/// The errors from writing the outbox.
pub(super) fn add(project: &Project, change: &IssueChange<'_>) -> Result<()> {
    // The sync compares states, so fields need no entry: it finds them also if git brought them.
    // Comments do.
    let Some(comment) = change
        .comment
        .filter(|_| project.config().linear.mode == LinearMode::Live)
    else {
        return Ok(());
    };
    let id = comment_id_there(&comment.id).to_string();
    let now = project.environment().now().seconds();
    let mut operation = Operation::new(
        id,
        OperationKind::Comment,
        change.after.stem().to_owned(),
        now,
    );
    let by = comment
        .by
        .as_ref()
        .map(|by| format!("\n\n({by})"))
        .unwrap_or_default();
    operation.body = Some(format!("{}{by}", comment.text));
    Outbox::edit(project.files(), |waiting| {
        // An interrupted call that is repeated adds it once.
        if !waiting.iter().any(|one| one.op_id == operation.op_id) {
            waiting.push(operation);
        }
    })
}

/// Notes in an issue of a tracker which of its fields were changed here. The sync takes the note
/// back.
///
/// A merge of two branches takes other values of such a field for an older or newer reading of the
/// tracker.
pub(super) fn mark_changed(before: &Issue, after: &mut Issue) {
    let patch = changed(Some(before), Some(after), true);
    let Some(remote) = &mut after.remote else {
        return;
    };
    let mut names: Vec<String> = match remote.0.get("changed") {
        Some(Json::Array(names)) => names.iter().filter_map(text).collect(),
        _ => Vec::new(),
    };
    let fields = [
        "title",
        "description",
        "type",
        "state",
        "priority",
        "assignee",
        "milestone",
    ];
    names.extend(
        fields
            .iter()
            .filter(|name| patch.0.contains_key(**name))
            .map(|name| (*name).to_owned()),
    );
    names.sort();
    names.dedup();
    if !names.is_empty() {
        remote.0.insert(
            "changed".to_owned(),
            Json::Array(names.into_iter().map(Json::String).collect()),
        );
    }
}

fn text(value: &Json) -> Option<String> {
    if let Json::String(text) = value {
        Some(text.clone())
    } else {
        None
    }
}

/// Returns the id that a comment gets in a tracker, by its id here. That id keeps itself.
#[must_use]
pub fn comment_id_there(id: &str) -> uuid::Uuid {
    let bytes = uuid::Uuid::parse_str(id)
        .map(uuid::Uuid::into_bytes)
        .unwrap_or_else(|_| {
            let mut bytes = [0; 16];
            bytes
                .iter_mut()
                .zip(Sha256::digest(id.as_bytes()))
                .for_each(|(to, from)| *to = from);
            bytes
        });
    // The tracker wants an id of version 4.
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

fn changed(before: Option<&Issue>, after: Option<&Issue>, new: bool) -> Members {
    let (old, now) = (members(before), members(after));
    let mut all = Members::default();
    for name in now
        .0
        .keys()
        .chain(old.0.keys().filter(|name| !now.0.contains_key(*name)))
    {
        // Comments are changes of their own; the rest is ours alone.
        if matches!(
            name.as_str(),
            "comments" | "remote" | "updated_at" | "aliases"
        ) {
            continue;
        }
        let (was, is) = (old.0.get(name), now.0.get(name));
        if was != is {
            all.0.insert(
                name.clone(),
                if new { is } else { was }.cloned().unwrap_or(Json::Null),
            );
        }
    }
    all
}

fn members(issue: Option<&Issue>) -> Members {
    let text = issue.and_then(|issue| serde_json::to_vec(issue).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_only_what_changed() {
        let before = Issue {
            linear_id: "A-1".to_owned(),
            title: "a".to_owned(),
            priority: Some(1),
            ..Issue::default()
        };
        let after = Issue {
            title: "b".to_owned(),
            priority: None,
            state: Some("Open".to_owned()),
            ..before.clone()
        };
        let change = IssueChange {
            kind: ChangeKind::Update,
            before: Some(&before),
            after: &after,
            comment: None,
        };
        let text = |members: &Members| serde_json::to_string(members).unwrap();
        assert_eq!(
            text(&change.patch()),
            r#"{"title":"b","state":"Open","priority":null}"#
        );
        assert_eq!(
            text(&change.base()),
            r#"{"title":"a","state":null,"priority":1}"#
        );
    }
}
