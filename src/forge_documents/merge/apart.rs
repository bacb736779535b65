//! Two features that got one id on two branches: each clone counts on its own.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::name_of;
use crate::features::split_id;
use crate::knowledge::id_of;
use helmdeck_forge_files::json::Json;

/// Gives a new id to each of their new features whose id another feature on our side has or had.
///
/// Ids of both sides and removed ids are not used again. Returns messages for people, because commits and reports name
/// the old id.
pub(super) fn apart(base: Option<&Json>, ours: &Json, theirs: &mut Json) -> Vec<String> {
    let none = Json::Null;
    let base = base.unwrap_or(&none);
    let is_new = |id: &str| feature(base, id).is_none();
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    let mut told = Vec::new();
    let mut used: BTreeSet<String> =
        [base, ours, theirs].into_iter().flat_map(|file| ids(file).chain(retired(file))).map(str::to_owned).collect();
    for id in ids(theirs).filter(|id| is_new(id)) {
        let called = feature(theirs, id).and_then(title);
        let other = match feature(ours, id) {
            Some(our) => title(our) != called,
            None => retired(ours).any(|gone| gone == id),
        };
        if !other {
            continue;
        }
        // It may have come over before, and got its new id then.
        let before = ids(ours).find(|other| {
            is_new(other) && feature(theirs, other).is_none() && feature(ours, other).and_then(title) == called
        });
        let next = before.map_or_else(|| next_id(id, &used), str::to_owned);
        told.push(format!("{id} is another feature on each side: theirs is {next} now, and is to be verified again"));
        used.insert(next.clone());
        renamed.insert(id.to_owned(), next);
    }
    // A feature that was added and removed on their side was not the one on our side.
    let not_ours: Vec<String> =
        retired(theirs).filter(|id| is_new(id) && feature(ours, id).is_some()).map(str::to_owned).collect();
    if let Some(Json::Array(all)) = member(theirs, "retired") {
        all.retain(|one| !matches!(one, Json::String(id) if not_ours.contains(id)));
    }
    if let Some(Json::Array(features)) = member(theirs, "features") {
        features.iter_mut().for_each(|feature| rename(feature, &renamed));
    }
    told
}

/// Gives a feature its new id, and updates the features that wait for it.
///
/// Evidence that it works is dropped, because it names the old id, and `passing` becomes `failing`.
pub(crate) fn rename(feature: &mut Json, renamed: &BTreeMap<String, String>) {
    let change = |text: &mut Json| match text {
        Json::String(id) => {
            let new = renamed.get(id.as_str());
            if let Some(new) = new {
                id.clone_from(new);
            }
            new.is_some()
        }
        _ => false,
    };
    match member(feature, "blocked_by") {
        Some(Json::Array(all)) => all.iter_mut().for_each(|one| {
            change(one);
        }),
        Some(one) => {
            change(one);
        }
        None => {}
    }
    if !member(feature, "id").is_some_and(change) {
        return;
    }
    if let Json::Object(members) = feature {
        members.0.shift_remove("evidence");
        if let Some(Json::String(status)) = members.0.get_mut("status")
            && status == "passing"
        {
            "failing".clone_into(status);
        }
    }
}

pub(crate) fn next_id(id: &str, used: &BTreeSet<String>) -> String {
    let prefix = id.rsplit_once('-').map_or(id, |(prefix, _)| prefix);
    let numbers = used.iter().filter_map(|id| split_id(id)).filter(|(other, _)| *other == prefix);
    let highest = numbers.map(|(_, number)| number).max().unwrap_or(0);
    format!("{prefix}-{:03}", highest.saturating_add(1))
}

fn member<'a>(value: &'a mut Json, name: &str) -> Option<&'a mut Json> {
    match value {
        Json::Object(members) => members.0.get_mut(name),
        _ => None,
    }
}

/// Returns the items of a list of a file.
pub(super) fn list<'a>(file: &'a Json, name: &str) -> &'a [Json] {
    match file {
        Json::Object(members) => match members.0.get(name) {
            Some(Json::Array(items)) => items,
            _ => &[],
        },
        _ => &[],
    }
}

/// Returns a feature by its id.
pub(super) fn feature<'a>(file: &'a Json, id: &str) -> Option<&'a Json> {
    list(file, "features").iter().find(|item| name_of(item).as_deref() == Some(id))
}

fn text<'a>(value: &'a Json, name: &str) -> Option<&'a str> {
    match value {
        Json::Object(members) => match members.0.get(name) {
            Some(Json::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Returns what a feature is called, however it is spaced.
pub(crate) fn title(feature: &Json) -> Option<String> {
    text(feature, "name").map(|name| id_of([name].into_iter()))
}

fn ids(file: &Json) -> impl Iterator<Item = &str> {
    list(file, "features").iter().filter_map(|feature| text(feature, "id"))
}

/// Returns the ids that one must not give again.
pub(super) fn retired(file: &Json) -> impl Iterator<Item = &str> {
    list(file, "retired").iter().filter_map(|one| match one {
        Json::String(id) => Some(id.as_str()),
        _ => None,
    })
}
