//! Three-way merge of an entry.

use std::collections::BTreeSet;

use super::issue::{self, Sides};
use crate::features::FeatureEntry;
use crate::issues::Issue;
use crate::knowledge::{LearningEntry, id_of};
use helmdeck_forge_files::files::{Document, Unreadable, decode};
use helmdeck_forge_files::json::{self, Json, Members};
use helmdeck_forge_files::layout::{FEATURES_ENTRIES, ISSUES, KNOWLEDGE_ENTRIES};
use helmdeck_forge_files::time::Time;

/// Members that belong together: by whom, when and where a feature was verified.
///
/// They all come from one side.
const SEEN: [&str; 4] = [
    "evidence",
    "verified_at",
    "verified_commit",
    "verified_code_tree",
];
/// Members about the status of a feature. They come from one side too, if that side knows more.
const OF_STATUS: [&str; 4] = ["status", "regressed_at", "regressed_before", "reason"];
/// Maximum depth of nested values.
const DEEPEST: usize = 100;

/// Result of a merge of two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The merged file, with our version at each conflict.
    pub bytes: Vec<u8>,
    /// What could not be settled; empty if all could.
    pub conflicts: Vec<String>,
}

/// Merges two versions of a file.
///
/// `base` is their common ancestor; it is empty if each side created the file.
#[must_use]
pub fn merge(path: &str, base: &[u8], ours: &[u8], theirs: &[u8]) -> Merged {
    let all_of = |bytes: &[u8], conflicts: Vec<String>| Merged {
        bytes: bytes.to_vec(),
        conflicts,
    };
    if ours == theirs || theirs == base {
        return all_of(ours, Vec::new());
    }
    let check = |bytes: &[u8]| check(path, bytes);
    if ours == base {
        return match check(theirs) {
            Ok(()) => all_of(theirs, Vec::new()),
            Err(why) => all_of(ours, vec![format!("theirs is damaged: {why}")]),
        };
    }
    let read = |bytes: &[u8], whose: &str| -> Result<Json, String> {
        check(bytes).map_err(|why| format!("{whose} is damaged: {why}"))?;
        serde_json::from_slice(bytes).map_err(|error| format!("{whose} is damaged: {error}"))
    };
    let (our, their) = match (read(ours, "ours"), read(theirs, "theirs")) {
        (Ok(our), Ok(their)) => (our, their),
        (Err(why), _) | (_, Err(why)) => return all_of(ours, vec![why]),
    };
    if is_removed(&our) != is_removed(&their) {
        return all_of(
            ours,
            vec!["one side removed it, and the other changed it".to_owned()],
        );
    }
    // Without a common ancestor, everything is new on both sides: that loses nothing.
    let base: Option<Json> = serde_json::from_slice(base).ok();
    let mut conflicts = Vec::new();
    let merged = value(
        base.as_ref(),
        &our,
        &their,
        JsonPath {
            path: "",
            depth: 0,
            newer: None,
        },
        &mut conflicts,
    );
    let bytes = print(path, &merged).unwrap_or_default();
    match check(&bytes) {
        Ok(()) => Merged { bytes, conflicts },
        Err(why) => {
            conflicts.push(format!("together they are no good: {why}"));
            all_of(ours, conflicts)
        }
    }
}

/// Joins two versions of an entry that have no common ancestor. Where they differ, the newer one
/// counts, or else ours.
pub(crate) fn union(ours: &Json, theirs: &Json) -> Json {
    value(
        None,
        ours,
        theirs,
        JsonPath {
            path: "",
            depth: 0,
            newer: None,
        },
        &mut Vec::new(),
    )
}

/// Says whether an entry is all that is left of a feature that was removed.
fn is_removed(entry: &Json) -> bool {
    matches!(entry, Json::Object(members) if members.0.contains_key("retired"))
}

/// Says whether a path, as git names it, is that of a file of a folder.
///
/// The memory may be below the root of the repository.
fn is_in(path: &str, folder: &str) -> bool {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    parent
        .strip_suffix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

fn print(path: &str, merged: &Json) -> Result<Vec<u8>, serde_json::Error> {
    if !is_in(path, ISSUES) {
        return json::print(merged);
    }
    let issue: Issue = serde_json::from_slice(&serde_json::to_vec(merged)?)?;
    issue.print()
}

fn check(path: &str, bytes: &[u8]) -> Result<(), String> {
    fn typed<D: Document>(bytes: &[u8]) -> Result<(), String> {
        match decode::<D>(bytes) {
            Ok((_, false)) => Ok(()),
            Ok((_, true)) => Err("a newer program wrote it".to_owned()),
            Err(Unreadable::Newer(version)) => {
                Err(format!("a newer program wrote it, with version {version}"))
            }
            Err(Unreadable::Damaged(damage)) => Err(format!(
                "{}:{}: {}",
                damage.line, damage.column, damage.what
            )),
        }
    }
    match path {
        _ if is_in(path, KNOWLEDGE_ENTRIES) => typed::<LearningEntry>(bytes),
        _ if is_in(path, FEATURES_ENTRIES) => typed::<FeatureEntry>(bytes),
        _ if is_in(path, ISSUES) => typed::<Issue>(bytes),
        _ => {
            let text = helmdeck_forge_files::files::text(bytes).map_err(|damage| damage.what)?;
            serde_json::from_str::<Json>(text)
                .map(drop)
                .map_err(|error| error.to_string())
        }
    }
}

/// Which side's entry is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newer {
    Ours,
    Theirs,
}

#[derive(Debug, Clone, Copy)]
struct JsonPath<'a> {
    /// Where it is, for people: `features/FORGE-001/name`.
    path: &'a str,
    depth: usize,
    /// Which side's entry is newer, of the entry it is in.
    newer: Option<Newer>,
}

fn value(
    base: Option<&Json>,
    ours: &Json,
    theirs: &Json,
    place: JsonPath<'_>,
    conflicts: &mut Vec<String>,
) -> Json {
    if ours == theirs || base == Some(theirs) {
        return ours.clone();
    }
    if base == Some(ours) {
        return theirs.clone();
    }
    // Each side created it: a value that one of them does not have was not changed by it.
    if let (None, Json::Null, only) | (None, only, Json::Null) = (base, ours, theirs) {
        return only.clone();
    }
    if place.depth > DEEPEST {
        conflicts.push(format!("{} lies too deep", place.path));
        return ours.clone();
    }
    match (ours, theirs) {
        (Json::Object(our), Json::Object(their)) => {
            let base = match base {
                Some(Json::Object(base)) => Some(base),
                _ => None,
            };
            Json::Object(object(base, our, their, place, conflicts))
        }
        // Steps belong together, and so does what a feature waits for.
        (Json::Array(our), Json::Array(their)) if !matches!(place.path, "steps" | "blocked_by") => {
            Json::Array(issue::list(issue::items(base), our, their))
        }
        _ => match place.newer {
            Some(Newer::Ours) => ours.clone(),
            Some(Newer::Theirs) => theirs.clone(),
            None => {
                conflicts.push(format!("both sides changed {}", place.path));
                ours.clone()
            }
        },
    }
}

fn object(
    base: Option<&Members>,
    ours: &Members,
    theirs: &Members,
    place: JsonPath<'_>,
    conflicts: &mut Vec<String>,
) -> Members {
    let newer = newer(ours, theirs).or(place.newer);
    let was = |name: &str| base.and_then(|base| base.0.get(name));
    let feature = ours.0.contains_key("status");
    let settled = [(ours, theirs), (theirs, ours)]
        .into_iter()
        .find(|(pass, fail)| recovered(pass, fail));
    let settled = settled.map(|(pass, _)| pass);
    let issue = Sides::of(base, ours, theirs);
    let mut merged = Members::default();
    // Ours first, then the ones that only they have, each in its order.
    let names = ours
        .0
        .keys()
        .chain(theirs.0.keys().filter(|name| !ours.0.contains_key(*name)));
    for name in names {
        let path = if place.path.is_empty() {
            name.clone()
        } else {
            format!("{}/{name}", place.path)
        };
        let place = JsonPath {
            path: &path,
            depth: place.depth + 1,
            newer,
        };
        if let Some(pass) = settled.filter(|_| OF_STATUS.contains(&name.as_str())) {
            merged
                .0
                .extend(pass.0.get(name).map(|value| (name.clone(), value.clone())));
            continue;
        }
        if let Some(value) = issue.and_then(|issue| issue.member(name)) {
            merged.0.extend(value.map(|value| (name.clone(), value)));
            continue;
        }
        let one = match (ours.0.get(name), theirs.0.get(name)) {
            (Some(our), Some(their)) => Some(match name.as_str() {
                "status"
                    if our != their && changed(was(name), our) && changed(was(name), their) =>
                {
                    Json::String("failing".to_owned())
                }
                "seen" => seen(was(name), our, their, base.is_some()),
                "last_confirmed_at" | "regressed_at" | "regressed_before" | "learned_at"
                | "updated_at" | "synced_at" => later(our, their),
                // Settled below, all together.
                name if feature && SEEN.contains(&name) => our.clone(),
                // If both are equally new, the origin of either is right: that is not a conflict.
                "session" | "linear" | "commit" | "agent" | "reason" | "superseded_by" => {
                    let newer = newer.or(Some(Newer::Ours));
                    value(
                        was(name),
                        our,
                        their,
                        JsonPath { newer, ..place },
                        conflicts,
                    )
                }
                "schema_version" => version(our, their),
                _ => value(was(name), our, their, place, conflicts),
            }),
            // One side has it: it was added there, or taken away on the other, which counts unless
            // it was changed.
            (Some(only), None) | (None, Some(only)) => {
                (was(name) != Some(only)).then(|| match name.as_str() {
                    "seen" => one_more(was(name), only, base.is_some()),
                    _ => only.clone(),
                })
            }
            (None, None) => None,
        };
        if let Some(one) = one {
            merged.0.insert(name.clone(), one);
        }
    }
    // Both learned the same by themselves: it was seen as often as both did.
    if base.is_none() && (is_learned(ours) && is_learned(theirs)) {
        let count = |members: &Members| number(members.0.get("seen")).unwrap_or(1);
        let times = (ours.0.get("learned_at"), theirs.0.get("learned_at"));
        // The same entry copied to both sides is not two.
        if times.0 != times.1 {
            let sum = count(ours).saturating_add(count(theirs));
            merged.0.insert("seen".to_owned(), Json::Number(sum.into()));
        }
    }
    if feature {
        let newer = match settled {
            Some(pass) if std::ptr::eq(pass, theirs) => Some(Newer::Theirs),
            Some(_) => Some(Newer::Ours),
            None => newer,
        };
        whole(
            base.filter(|_| settled.is_none()),
            ours,
            theirs,
            &mut merged,
            newer,
        );
    }
    merged
}

/// Says whether one side saw a feature work again after the last failure that the other side knows.
///
/// This happens after a rollback.
fn recovered(pass: &Members, fail: &Members) -> bool {
    let status = |members: &Members, word: &str| {
        members.0.get("status") == Some(&Json::String(word.to_owned()))
    };
    let at = |members: &Members, name: &str| members.0.get(name).and_then(time);
    status(pass, "passing")
        && status(fail, "failing")
        && at(fail, "regressed_at").is_some_and(|failed| {
            at(pass, "regressed_before").is_some_and(|known| known >= failed)
                && at(pass, "verified_at").is_some_and(|seen| seen >= failed)
        })
}

/// Takes the evidence of a feature from one side: the one that changed it, or verified it last.
///
/// A feature that does not pass has no evidence. A feature whose tests are now others than those
/// that ran does not pass.
fn whole(
    base: Option<&Members>,
    ours: &Members,
    theirs: &Members,
    merged: &mut Members,
    newer: Option<Newer>,
) {
    let same = |a: &Members, b: &Members| SEEN.iter().all(|name| a.0.get(*name) == b.0.get(*name));
    let both = same(ours, theirs);
    let from = match base {
        _ if both => ours,
        Some(base) if same(base, ours) => theirs,
        Some(base) if same(base, theirs) => ours,
        _ if newer == Some(Newer::Theirs) => theirs,
        _ => ours,
    };
    let passing =
        |members: &Members| members.0.get("status") == Some(&Json::String("passing".to_owned()));
    // If both sides have the same pass, the tests of either side may be those that it ran.
    let ran = shown_by(merged) == shown_by(from) || both && shown_by(merged) == shown_by(theirs);
    if passing(merged) && !ran {
        merged
            .0
            .insert("status".to_owned(), Json::String("failing".to_owned()));
    } else if both {
        return;
    }
    let passing = passing(merged);
    for name in SEEN {
        match from.0.get(name) {
            Some(value) if passing || name != "evidence" => {
                merged.0.insert(name.to_owned(), value.clone());
            }
            _ => {
                merged.0.shift_remove(name);
            }
        }
    }
}

/// Returns what shows that a feature works: its tests in whatever order.
fn shown_by(feature: &Members) -> BTreeSet<&str> {
    fn text(item: &Json) -> Option<&str> {
        match item {
            Json::String(text) => Some(text),
            _ => None,
        }
    }
    match feature.0.get("tests") {
        Some(Json::Array(tests)) => tests.iter().filter_map(text).collect(),
        _ => BTreeSet::new(),
    }
}

/// Returns the name by which an element of a list is matched: its id, its key, the hash of its
/// text, or else all of it.
pub(crate) fn name_of(item: &Json) -> String {
    let text = match item {
        Json::Object(members) => {
            let text = |name: &str| match members.0.get(name) {
                Some(Json::String(text)) => Some(text),
                _ => None,
            };
            if let Some(id) = text("id").or_else(|| text("linear_id")) {
                return id.clone();
            }
            text("text")
        }
        Json::String(text) => Some(text),
        _ => None,
    };
    match text {
        Some(text) => id_of(std::iter::once(text.as_str())),
        None => serde_json::to_string(item).unwrap_or_default(),
    }
}

fn is_learned(members: &Members) -> bool {
    members.0.contains_key("learned_at") && members.0.contains_key("context")
}

fn changed(base: Option<&Json>, now: &Json) -> bool {
    base != Some(now)
}

/// Returns which of two entries is newer, if their times tell.
fn newer(ours: &Members, theirs: &Members) -> Option<Newer> {
    let at = |members: &Members| {
        let times = ["learned_at", "verified_at", "last_confirmed_at"]
            .iter()
            .filter_map(|name| members.0.get(*name));
        times.filter_map(time).max()
    };
    match at(ours).cmp(&at(theirs)) {
        std::cmp::Ordering::Greater => Some(Newer::Ours),
        std::cmp::Ordering::Less => Some(Newer::Theirs),
        std::cmp::Ordering::Equal => None,
    }
}

fn time(value: &Json) -> Option<Time> {
    match value {
        Json::String(text) => Time::parse(text).ok(),
        _ => None,
    }
}

fn later(ours: &Json, theirs: &Json) -> Json {
    if time(theirs) > time(ours) {
        theirs.clone()
    } else {
        ours.clone()
    }
}

fn number(value: Option<&Json>) -> Option<u64> {
    match value {
        Some(Json::Number(number)) => number.as_u64(),
        _ => None,
    }
}

/// Adds up how often either side saw something since.
fn seen(base: Option<&Json>, ours: &Json, theirs: &Json, known: bool) -> Json {
    let (Some(our), Some(their)) = (number(Some(ours)), number(Some(theirs))) else {
        return ours.clone();
    };
    let was = number(base).unwrap_or(u64::from(known));
    Json::Number(
        our.saturating_add(their)
            .saturating_sub(was)
            .max(our)
            .max(their)
            .into(),
    )
}

fn one_more(base: Option<&Json>, only: &Json, known: bool) -> Json {
    // The side without a count saw it once, as it was.
    seen(
        base,
        only,
        &Json::Number(number(base).unwrap_or(1).into()),
        known,
    )
}

fn version(ours: &Json, theirs: &Json) -> Json {
    let parts = |value: &Json| match value {
        Json::String(text) => text
            .split('.')
            .map(|part| part.parse::<u64>().unwrap_or(0))
            .collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    if parts(theirs) > parts(ours) {
        theirs.clone()
    } else {
        ours.clone()
    }
}
