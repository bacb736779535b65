//! Superseded entries after a merge: every entry that holds can still be found.

use std::collections::HashMap;

use super::rules::name_of;
use helmdeck_forge_files::json::Json;
use helmdeck_forge_files::time::Time;

/// An entry that was superseded.
const BY: &str = "superseded_by";

/// Resolves which entry supersedes which.
///
/// Of two that supersede the same entry, the one that was learned later wins. Of entries that supersede each other, the
/// last one learned holds.
pub(super) fn settle(merged: &mut Json, ours: &Json, theirs: &Json) {
    let (our, their) = (links(ours), links(theirs));
    let learned = times(merged);
    let at = |id: &str| learned.get(id).copied().flatten();
    let mut now = links(merged);
    for (id, by) in &mut now {
        if let (Some(our), Some(their)) = (our.get(id), their.get(id)) {
            *by = if at(their) > at(our) { their.clone() } else { our.clone() };
        }
    }
    let all: Vec<String> = now.keys().cloned().collect();
    for id in all {
        // The chain from one entry to the next; no chain is longer than the number of links.
        let mut way = vec![id];
        while let Some(next) = way.last().and_then(|last| now.get(last)) {
            if let Some(begins) = way.iter().position(|one| one == next) {
                let ring = &way[begins..];
                if let Some(last) = ring.iter().max_by(|a, b| (at(a), a).cmp(&(at(b), b))) {
                    now.remove(last.as_str());
                }
                break;
            }
            way.push(next.clone());
        }
    }
    entries_mut(merged, &mut |entry| {
        let Some(id) = name_of(entry) else { return };
        if let Json::Object(members) = entry {
            match now.get(&id) {
                Some(by) if members.0.contains_key(BY) => {
                    members.0.insert(BY.to_owned(), Json::String(by.clone()));
                }
                None if matches!(members.0.get(BY), Some(Json::String(_))) => {
                    members.0.shift_remove(BY);
                }
                _ => {}
            }
        }
    });
}

/// Returns every list of entries of a file: what was learned, and the rest.
fn lists(file: &Json) -> Vec<&Json> {
    let Json::Object(members) = file else { return Vec::new() };
    let patterns = match members.0.get("patterns") {
        Some(Json::Object(patterns)) => patterns.0.values().collect(),
        _ => Vec::new(),
    };
    members.0.values().chain(patterns).collect()
}

fn entries(file: &Json) -> impl Iterator<Item = (String, &helmdeck_forge_files::json::Members)> {
    let items = lists(file).into_iter().flat_map(|list| match list {
        Json::Array(items) => items.as_slice(),
        _ => &[],
    });
    items.filter_map(|item| match item {
        Json::Object(members) => Some((name_of(item)?, members)),
        _ => None,
    })
}

fn entries_mut(value: &mut Json, with: &mut impl FnMut(&mut Json)) {
    let Json::Object(members) = value else { return };
    for (name, value) in &mut members.0 {
        match value {
            Json::Array(items) => items.iter_mut().for_each(&mut *with),
            Json::Object(_) if name == "patterns" => entries_mut(value, with),
            _ => {}
        }
    }
}

fn links(file: &Json) -> HashMap<String, String> {
    let of = |(id, members): (String, &helmdeck_forge_files::json::Members)| match members.0.get(BY) {
        Some(Json::String(by)) => Some((id, by.clone())),
        _ => None,
    };
    entries(file).filter_map(of).collect()
}

/// Returns when each entry was learned.
fn times(file: &Json) -> HashMap<String, Option<Time>> {
    let of = |(id, members): (String, &helmdeck_forge_files::json::Members)| {
        let at = match members.0.get("learned_at") {
            Some(Json::String(text)) => Time::parse(text).ok(),
            _ => None,
        };
        (id, at)
    };
    entries(file).map(of).collect()
}
