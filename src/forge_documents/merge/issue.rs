//! Rules for issues: lists element by element, and values that a tracker has by the newer reading
//! of it.
//!
//! Every clone reads the tracker on its own, so two branches often have two readings of one issue.
//! The older one is no change of anybody's. `remote.changed` names the fields that were changed
//! here and are not delivered yet: these are merged like everything else.

use std::collections::BTreeSet;

use helmdeck_forge_files::json::{Json, Members};
use helmdeck_forge_files::time::Time;

use super::rules::name_of;

/// Lists that are merged element by element; a removed element stays removed.
const LISTS: [&str; 5] = [
    "labels",
    "features",
    "blocked_by",
    "aliases",
    "acceptance_criteria",
];
/// Fields that a tracker has as well.
const MIRRORED: [&str; 8] = [
    "title",
    "description",
    "type",
    "state",
    "priority",
    "assignee",
    "milestone",
    "url",
];
/// The member of an issue about its counterpart in a tracker.
const REMOTE: &str = "remote";
/// The fields that were changed here since the tracker was read.
const CHANGED: &str = "changed";

/// Two versions of an issue, and their common ancestor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sides<'a> {
    base: Option<&'a Members>,
    ours: &'a Members,
    theirs: &'a Members,
}

impl<'a> Sides<'a> {
    /// Returns the versions, if both are issues.
    pub(super) fn of(
        base: Option<&'a Members>,
        ours: &'a Members,
        theirs: &'a Members,
    ) -> Option<Self> {
        let both = ours.0.contains_key("linear_id") && theirs.0.contains_key("linear_id");
        both.then_some(Self { base, ours, theirs })
    }

    /// Returns the merged value of a member: `None` if the general rules apply, an inner `None` if
    /// it is gone.
    pub(super) fn member(&self, name: &str) -> Option<Option<Json>> {
        let (ours, theirs) = (self.ours.0.get(name), self.theirs.0.get(name));
        if LISTS.contains(&name) {
            let was = self.base.and_then(|base| base.0.get(name));
            let merged = list(items(was), items(ours), items(theirs));
            let absent = merged.is_empty() && (ours.is_none() || theirs.is_none());
            return Some((!absent).then_some(Json::Array(merged)));
        }
        if name == "created_at" {
            let earlier = match (ours.and_then(time), theirs.and_then(time)) {
                (Some(our), Some(their)) if their < our => theirs,
                (None, Some(_)) => theirs,
                _ => ours,
            };
            return Some(earlier.cloned());
        }
        let (newer, is_same) = self.newer()?;
        if name == REMOTE {
            return Some(self.remote(newer));
        }
        // Of two equally new readings with different values, somebody chose one in a merge.
        let is_reading = !is_same
            && MIRRORED.contains(&name)
            && [self.ours, self.theirs]
                .iter()
                .all(|side| changed(side).iter().all(|one| one != name));
        // A value that the newer reading lacks may be one that the tracker has no place for.
        let read = newer.0.get(name).filter(|value| **value != Json::Null);
        read.filter(|_| is_reading).map(|value| Some(value.clone()))
    }

    /// Returns the side with the newer reading of the same issue of a tracker, and whether both are
    /// equally new.
    fn newer(&self) -> Option<(&'a Members, bool)> {
        let (our, their) = (remote(self.ours)?, remote(self.theirs)?);
        if our.0.get("id")? != their.0.get("id")? {
            return None;
        }
        let (at, other) = (
            time(our.0.get("updated_at")?)?,
            time(their.0.get("updated_at")?)?,
        );
        Some((
            if other > at { self.theirs } else { self.ours },
            other == at,
        ))
    }

    /// Returns the names of undelivered changes: those of both sides, without those that one side
    /// delivered.
    ///
    /// A value that was changed again since is not delivered yet.
    fn undelivered(&self) -> BTreeSet<String> {
        let (ours, theirs) = (changed(self.ours), changed(self.theirs));
        let was = self.base.map(changed).unwrap_or_default();
        let is_there = |name: &&String| {
            let side = match (ours.contains(*name), theirs.contains(*name)) {
                (true, true) => return true,
                (true, false) => self.ours,
                _ => self.theirs,
            };
            !was.contains(*name)
                || self.base.and_then(|base| base.0.get(*name)) != side.0.get(*name)
        };
        ours.iter()
            .chain(&theirs)
            .filter(is_there)
            .cloned()
            .collect()
    }

    /// Returns what is known of the counterpart: by the newer reading, with the undelivered changes
    /// of both.
    fn remote(&self, newer: &Members) -> Option<Json> {
        let mut merged = remote(newer)?.clone();
        let all = self.undelivered();
        if all.is_empty() {
            merged.0.shift_remove(CHANGED);
        } else {
            merged.0.insert(
                CHANGED.to_owned(),
                Json::Array(all.into_iter().map(Json::String).collect()),
            );
        }
        Some(Json::Object(merged))
    }
}

/// Joins the lists of an issue with those of changes whose common ancestor is not known: no element
/// is removed.
///
/// Members of `changes` that are lists of issues become the joined lists; the others stay as they
/// are.
pub fn join_lists(issue: &Members, changes: &mut Members) {
    for name in LISTS {
        if let Some(changed) = changes.0.get_mut(name) {
            *changed = Json::Array(list(&[], items(issue.0.get(name)), items(Some(changed))));
        }
    }
}

fn remote(issue: &Members) -> Option<&Members> {
    match issue.0.get(REMOTE)? {
        Json::Object(remote) => Some(remote),
        _ => None,
    }
}

fn changed(issue: &Members) -> Vec<String> {
    let name = |item: &'_ Json| {
        if let Json::String(name) = item {
            Some(name.clone())
        } else {
            None
        }
    };
    items(remote(issue).and_then(|remote| remote.0.get(CHANGED)))
        .iter()
        .filter_map(name)
        .collect()
}

pub(super) fn items(value: Option<&Json>) -> &[Json] {
    match value {
        Some(Json::Array(items)) => items,
        _ => &[],
    }
}

fn time(value: &Json) -> Option<Time> {
    match value {
        Json::String(text) => Time::parse(text).ok(),
        _ => None,
    }
}

/// Merges two lists by the names of their elements. An element that one side removed and the other
/// changed stays.
pub(super) fn list(base: &[Json], ours: &[Json], theirs: &[Json]) -> Vec<Json> {
    let find = |all: &'_ [Json], name: &str| all.iter().position(|item| name_of(item) == *name);
    let mut merged: Vec<Json> = Vec::with_capacity(ours.len() + theirs.len());
    let mut seen: Vec<String> = Vec::new();
    for our in ours {
        let name = name_of(our);
        let was = find(base, &name).and_then(|at| base.get(at));
        match find(theirs, &name).and_then(|at| theirs.get(at)) {
            Some(their) => merged.push(one(was, our, their).clone()),
            None if was == Some(our) => {}
            None => merged.push(our.clone()),
        }
        seen.push(name);
    }
    for their in theirs {
        let name = name_of(their);
        let was = find(base, &name).and_then(|at| base.get(at));
        if !seen.contains(&name) && was != Some(their) {
            merged.push(their.clone());
        }
    }
    merged
}

/// Merges an element that both sides have: the side that changed it, else the one that says more.
fn one<'a>(base: Option<&Json>, ours: &'a Json, theirs: &'a Json) -> &'a Json {
    if ours == theirs || base == Some(theirs) {
        return ours;
    }
    if base == Some(ours) {
        return theirs;
    }
    let done = |item: &Json| matches!(item, Json::Object(members) if members.0.get("done") == Some(&Json::Bool(true)));
    let says_more =
        done(theirs) && !done(ours) || matches!((ours, theirs), (Json::String(_), Json::Object(_)));
    if says_more { theirs } else { ours }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::merge::merge;

    const PATH: &str = ".forge/linear/issues/SX9-1.json";

    fn merged(base: &Value, ours: &Value, theirs: &Value) -> (Value, Vec<String>) {
        let bytes = |value: &Value| {
            if value.is_null() {
                Vec::new()
            } else {
                serde_json::to_vec(value).unwrap()
            }
        };
        let merged = merge(PATH, &bytes(base), &bytes(ours), &bytes(theirs));
        (
            serde_json::from_slice(&merged.bytes).unwrap(),
            merged.conflicts,
        )
    }

    fn issue(title: &str, updated: u8, changed: &[&str]) -> Value {
        let mut remote = json!({"id": "x", "synced": title, "updated_at": format!("2026-01-01T00:00:{updated:02}Z")});
        if !changed.is_empty() {
            remote["changed"] = json!(changed);
        }
        json!({"linear_id": "SX9-1", "title": title, "created_at": format!("2026-01-01T00:00:{updated:02}Z"), "remote": remote})
    }

    #[test]
    fn newer_reading_of_tracker_wins() {
        let (older, newer) = (issue("older", 1, &[]), issue("newer", 2, &[]));
        for (base, ours, theirs) in [
            (issue("first", 0, &[]), &older, &newer),
            (issue("first", 0, &[]), &newer, &older),
            // The tracker went back to what the common ancestor has.
            (issue("newer", 0, &[]), &older, &newer),
            (Value::Null, &newer, &older),
        ] {
            let (found, conflicts) = merged(&base, ours, theirs);
            assert_eq!(
                (&found["title"], &found["remote"], conflicts.len()),
                (&json!("newer"), &newer["remote"], 0)
            );
        }
        assert_eq!(
            merged(&Value::Null, &newer, &older).0["created_at"],
            "2026-01-01T00:00:01Z",
            "the earlier"
        );
    }

    #[test]
    fn value_of_one_side_stays_without_common_ancestor() {
        let with = |branch: Value| json!({"linear_id": "SX9-1", "title": "t", "git_refs": {"branch": branch}});
        for (ours, theirs) in [(json!("b"), Value::Null), (Value::Null, json!("b"))] {
            let (found, conflicts) = merged(&Value::Null, &with(ours), &with(theirs));
            assert_eq!(
                (&found["git_refs"]["branch"], conflicts.len()),
                (&json!("b"), 0)
            );
        }
    }

    #[test]
    fn undelivered_change_is_no_reading() {
        let (base, mine) = (issue("first", 0, &[]), issue("mine", 0, &["title"]));
        let (found, conflicts) = merged(&base, &mine, &issue("theirs", 2, &[]));
        assert_eq!((conflicts.len(), &found["title"]), (1, &json!("mine")));
        let (found, conflicts) = merged(&base, &issue("first", 2, &[]), &mine);
        assert_eq!((conflicts.len(), &found["title"]), (0, &json!("mine")));
        assert_eq!(found["remote"]["updated_at"], "2026-01-01T00:00:02Z");
        assert_eq!(found["remote"]["changed"], json!(["title"]));
    }

    #[test]
    fn lists_merge_element_by_element() {
        let with = |labels: &[&str], criteria: Value| json!({"linear_id": "SX9-1", "title": "t", "labels": labels, "acceptance_criteria": criteria});
        let base = with(&["a", "b"], json!(["one", "two"]));
        let ours = with(&["b", "c"], json!([{"text": "one", "done": true}, "two"]));
        let theirs = with(&["a", "b", "d"], json!(["one", "three"]));
        let (found, conflicts) = merged(&base, &ours, &theirs);
        assert_eq!(conflicts, Vec::<String>::new());
        assert_eq!(found["labels"], json!(["b", "c", "d"]));
        let criterion =
            |text: &str, done: bool| json!({"text": text, "done": done, "evidence": null});
        assert_eq!(
            found["acceptance_criteria"],
            json!([criterion("one", true), criterion("three", false)])
        );
    }
}
