//! Knowledge and features with a file for each entry.
//!
//! The file of an entry has the form of its document, with that entry alone. Both forms are read, and the document is
//! the same: what its own file has, then the entries by the names of their files. An entry that is in two files is
//! merged, and of two features with one id the second gets the next number.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use helmdeck_forge_files::files::{Damage, Entries, EntryWrite, etag};
use helmdeck_forge_files::json::{self, Json, Members};
use helmdeck_forge_files::layout::{FEATURES, FEATURES_ENTRIES, KNOWLEDGE, KNOWLEDGE_ENTRIES};

use crate::features::{FeaturesFile, is_id};
use crate::knowledge::KnowledgeFile;
use crate::merge::{name_of, next_id, rename, title, union};

/// The lists of the documents, each by the members that lead to it.
const KNOWLEDGE_LISTS: &[&[&str]] =
    &[&["patterns", "successful"], &["patterns", "failed"], &["invariants"], &["decisions"]];
const FEATURES_LISTS: &[&[&str]] = &[&["features"], &["retired"], &["not_adopted"], &["amendments"]];
/// The lists that a document lacks if they are empty.
const OPTIONAL: [&str; 4] = ["decisions", "retired", "not_adopted", "amendments"];
/// Length of the parts of a file name that are made of hashes, in characters.
const SHORT: usize = 8;
const LONG: usize = 12;

/// The documents that may have a file for each entry.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryFiles {
    /// Whether new entries get files. Existing files are read, and changed, in any case.
    pub apart: bool,
}

/// An entry: its list, its name in that list, and its value.
#[derive(Debug, Clone)]
struct Entry {
    list: usize,
    key: String,
    value: Json,
}

/// An entry in a file of its own, with its name in the document.
#[derive(Debug)]
struct Placed {
    file: usize,
    entry: Entry,
}

fn lists(path: &str) -> &'static [&'static [&'static str]] {
    match path {
        KNOWLEDGE => KNOWLEDGE_LISTS,
        FEATURES => FEATURES_LISTS,
        _ => &[],
    }
}

impl Entries for EntryFiles {
    fn folder(&self, path: &str) -> Option<String> {
        match path {
            KNOWLEDGE => Some(KNOWLEDGE_ENTRIES.to_owned()),
            FEATURES => Some(FEATURES_ENTRIES.to_owned()),
            _ => None,
        }
    }

    fn join(&self, path: &str, main: &[u8], entries: &[(String, Vec<u8>)]) -> Result<Vec<u8>, (String, Damage)> {
        if entries.is_empty() {
            return Ok(main.to_vec());
        }
        // Its own damage is reported by who reads the document.
        let Some(document) = parse(main) else { return Ok(main.to_vec()) };
        let mut files = Vec::with_capacity(entries.len());
        for (file, bytes) in entries {
            check(path, bytes).map_err(|damage| (file.clone(), damage))?;
            files.push(parse(bytes).unwrap_or_default());
        }
        let whole = whole(path, document, &files);
        Ok(whole.and_then(|whole| json::print(&whole).ok()).unwrap_or_else(|| main.to_vec()))
    }

    fn split(
        &self,
        path: &str,
        main: &[u8],
        entries: &[(String, Vec<u8>)],
        new: &[u8],
        salt: u64,
    ) -> Option<Vec<EntryWrite>> {
        if entries.is_empty() && !self.apart {
            return None;
        }
        let (old, new) = (parse(main)?, parse(new)?);
        let files: Vec<Json> = entries.iter().map(|(_, bytes)| parse(bytes)).collect::<Option<_>>()?;
        let names = lists(path);
        let by_name = |document: &Json| -> BTreeMap<(usize, String), Json> {
            all(path, document).into_iter().rev().map(|one| ((one.list, one.key), one.value)).collect()
        };
        let (in_main, before, wanted) = (by_name(&old), by_name(&whole(path, old.clone(), &files)?), by_name(&new));
        let is_same = |id: &(usize, String)| before.get(id) == wanted.get(id);
        let mut claimed: HashSet<(usize, String)> = HashSet::new();
        let mut kept: Vec<Vec<Entry>> = vec![Vec::new(); files.len()];
        for Placed { file, entry } in placed(path, &old, &files) {
            let id = (entry.list, entry.key.clone());
            let Some(value) = wanted.get(&id) else { continue };
            // An entry in several files is merged at each reading. Only a change of it makes these files equal: to remove
            // all but one would look like a rename to git, and conflict with that of another branch.
            let value = if is_same(&id) { entry.value.clone() } else { value.clone() };
            claimed.insert(id);
            kept[file].push(Entry { value, ..entry });
        }
        let (mut writes, mut removals) = (Vec::new(), Vec::new());
        for entry in all(path, &new) {
            let id = (entry.list, entry.key.clone());
            if self.apart && !in_main.contains_key(&id) && claimed.insert(id) {
                let bytes = json::print(&alone(names, &entry)).ok()?;
                writes.push((file_name(path, &entry, &[&bytes[..], &salt.to_be_bytes()].concat())?, Some(bytes)));
            }
        }
        for ((file, mut document), kept) in entries.iter().zip(files).zip(kept) {
            if kept.is_empty() {
                removals.push((file.0.clone(), None));
                continue;
            }
            for (number, names) in names.iter().enumerate() {
                if !list(&document, names).is_empty()
                    && let Some(items) = list_mut(&mut document, names)
                {
                    *items = kept.iter().filter(|one| one.list == number).map(|one| one.value.clone()).collect();
                }
            }
            let bytes = json::print(&document).ok()?;
            if parse(&bytes) != parse(&file.1) {
                writes.push((file.0.clone(), Some(bytes)));
            }
        }
        let mut rest = new;
        for (number, names) in names.iter().enumerate() {
            if list(&rest, names).is_empty() {
                continue;
            }
            if let Some(items) = list_mut(&mut rest, names) {
                items.retain_mut(|item| {
                    let id = (number, key(item));
                    let own = in_main.get(&id);
                    if let Some(own) = own.filter(|_| is_same(&id)) {
                        item.clone_from(own);
                    }
                    own.is_some() || !claimed.contains(&id)
                });
            }
            // A list that has only entries with files is absent if it was absent before.
            if let ([name], Json::Object(members)) = (names, &mut rest)
                && member(&old, names).is_none()
                && matches!(members.0.get(*name), Some(Json::Array(items)) if items.is_empty())
                && OPTIONAL.contains(name)
            {
                members.0.shift_remove(*name);
            }
        }
        if rest != old {
            writes.push((path.to_owned(), Some(json::print(&rest).ok()?)));
        }
        writes.extend(removals);
        Some(writes)
    }
}

/// Returns the whole document. `None` if something else has the place of a list.
fn whole(path: &str, mut document: Json, files: &[Json]) -> Option<Json> {
    let mut at: HashMap<(usize, String), usize> = HashMap::new();
    for (number, names) in lists(path).iter().enumerate() {
        for (index, item) in list(&document, names).iter().enumerate() {
            at.entry((number, key(item))).or_insert(index);
        }
    }
    for Placed { entry, .. } in placed(path, &document, files) {
        let items = list_mut(&mut document, lists(path)[entry.list])?;
        match at.get(&(entry.list, entry.key.clone())).and_then(|index| items.get_mut(*index)) {
            Some(there) if *there == entry.value => {}
            Some(there) => *there = both(path, entry.list, there, &entry.value),
            None => {
                at.insert((entry.list, entry.key), items.len());
                items.push(entry.value);
            }
        }
    }
    // A number that one branch gave and took back stands for another branch's feature.
    let ids: HashSet<String> = list(&document, &["features"]).iter().map(key).collect();
    if let Json::Object(members) = &mut document
        && let Some(Json::Array(retired)) = members.0.get_mut("retired")
    {
        retired.retain(|one| !matches!(one, Json::String(id) if ids.contains(id)));
    }
    Some(document)
}

/// Returns the entries of files with their places in the document. A feature whose id is taken gets the next one.
fn placed(path: &str, main: &Json, files: &[Json]) -> Vec<Placed> {
    let features = lists(path).iter().position(|names| *names == ["features"]);
    let mut used: BTreeSet<String> = std::iter::once(main).chain(files).flat_map(|file| ids(path, file)).collect();
    let mut taken: HashMap<String, Option<String>> = HashMap::new();
    for one in all(path, main).into_iter().filter(|one| Some(one.list) == features) {
        taken.insert(one.key, title(&one.value));
    }
    let mut placed = Vec::new();
    for (number, file) in files.iter().enumerate() {
        for mut entry in all(path, file) {
            let own = entry.key.clone();
            if Some(entry.list) == features {
                let called = title(&entry.value);
                if taken.get(&own).is_some_and(|other| *other != called) {
                    let next = next_id(&own, &used);
                    rename(&mut entry.value, &BTreeMap::from([(own.clone(), next.clone())]));
                    used.insert(next.clone());
                    entry.key = next;
                }
                taken.insert(entry.key.clone(), called);
            }
            placed.push(Placed { file: number, entry });
        }
    }
    placed
}

/// Returns the ids of the features of a file, removed ones included.
fn ids(path: &str, file: &Json) -> Vec<String> {
    if path != FEATURES {
        return Vec::new();
    }
    let given = list(file, &["features"]).iter().map(key);
    let retired = list(file, &["retired"]).iter().filter_map(|one| match one {
        Json::String(id) => Some(id.clone()),
        _ => None,
    });
    given.chain(retired).collect()
}

/// Merges two versions of an entry.
fn both(path: &str, list_number: usize, ours: &Json, theirs: &Json) -> Json {
    let names = lists(path);
    let file = |value: &Json| alone(names, &Entry { list: list_number, key: String::new(), value: value.clone() });
    let merged = union(path, &file(ours), &file(theirs));
    list(&merged, names[list_number]).first().cloned().unwrap_or_else(|| ours.clone())
}

/// Returns a document with one entry.
fn alone(names: &[&[&str]], entry: &Entry) -> Json {
    let mut document = Json::Object(Members::default());
    if let Json::Object(members) = &mut document {
        members.0.insert("schema_version".to_owned(), Json::String("1.0".to_owned()));
    }
    if let Some(items) = list_mut(&mut document, names[entry.list]) {
        items.push(entry.value.clone());
    }
    document
}

/// Returns the name of a new entry's file: no two branches give one name to two entries.
fn file_name(path: &str, entry: &Entry, salted: &[u8]) -> Option<String> {
    let folder = EntryFiles::default().folder(path)?;
    let list = lists(path).get(entry.list)?.last()?;
    let hash = etag(salted);
    let own = if *list == "features" && is_id(&entry.key) {
        entry.key.clone()
    } else {
        let key = etag(entry.key.as_bytes());
        format!("{list}-{}", key.get(..LONG)?)
    };
    Some(format!("{folder}/{own}-{}.json", hash.get(..SHORT)?))
}

fn all(path: &str, document: &Json) -> Vec<Entry> {
    let entries = lists(path).iter().enumerate().flat_map(|(number, names)| {
        list(document, names).iter().map(move |item| Entry { list: number, key: key(item), value: item.clone() })
    });
    entries.collect()
}

/// Returns the name by which an entry is known in its list.
fn key(item: &Json) -> String {
    name_of(item).unwrap_or_else(|| serde_json::to_string(item).unwrap_or_default())
}

fn member<'a>(document: &'a Json, names: &[&str]) -> Option<&'a Json> {
    names.iter().try_fold(document, |value, name| match value {
        Json::Object(members) => members.0.get(*name),
        _ => None,
    })
}

fn list<'a>(document: &'a Json, names: &[&str]) -> &'a [Json] {
    match member(document, names) {
        Some(Json::Array(items)) => items,
        _ => &[],
    }
}

/// Returns a list to change it, and creates it if it is absent. `None` if something else has its place.
fn list_mut<'a>(document: &'a mut Json, names: &[&str]) -> Option<&'a mut Vec<Json>> {
    let mut value = document;
    for (at, name) in names.iter().enumerate() {
        let Json::Object(members) = value else { return None };
        let is_last = at + 1 == names.len();
        value = members
            .0
            .entry((*name).to_owned())
            .or_insert_with(|| if is_last { Json::Array(Vec::new()) } else { Json::Object(Members::default()) });
    }
    match value {
        Json::Array(items) => Some(items),
        _ => None,
    }
}

/// Parses a document; `None` if it is damaged.
fn parse(bytes: &[u8]) -> Option<Json> {
    let text = helmdeck_forge_files::files::text(bytes).ok()?;
    serde_json::from_str(text).ok().filter(|value| matches!(value, Json::Object(_)))
}

/// Checks the form of an entry's file. The rules of a whole document do not apply to it.
fn check(path: &str, bytes: &[u8]) -> Result<(), Damage> {
    let text = helmdeck_forge_files::files::text(bytes)?;
    let read = match path {
        KNOWLEDGE => serde_json::from_str::<KnowledgeFile>(text).map(drop),
        _ => serde_json::from_str::<FeaturesFile>(text).map(drop),
    };
    read.map_err(|error| Damage { line: error.line(), column: error.column(), what: error.to_string() })
}

#[cfg(test)]
mod tests;
