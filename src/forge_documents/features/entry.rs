//! Features, a file for each.

use std::collections::{BTreeSet, HashMap};

use helmdeck_forge_files::files::{
    Document, Entries, EntryFile, EntryPlace, Joined, StoredEntry, decode,
};
use helmdeck_forge_files::json::{Json, Members};
use helmdeck_forge_files::layout::FEATURES_ENTRIES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Feature, FeaturesFile, Status, is_id, split_id};
use crate::entries::{entry, slug};
use crate::knowledge::id_of;

/// An entry of the features, as its file has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FeatureEntry {
    /// A feature.
    Feature(Box<Feature>),
    /// Anything else, in a document with that alone: the id of a removed feature, a change of the
    /// contract.
    Part(FeaturesFile),
}

impl Document for FeatureEntry {
    const PATH: &'static str = FEATURES_ENTRIES;

    fn skeleton() -> Self {
        Self::Part(FeaturesFile::skeleton())
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Feature(feature) if !is_id(&feature.id) => Err(format!(
                "{:?} is no id: write it like FORGE-001",
                feature.id
            )),
            Self::Feature(feature) if feature.name.trim().is_empty() => {
                Err(format!("{} has no name", feature.id))
            }
            Self::Part(part) if !part.features.is_empty() => {
                Err("expected one feature, without a list".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn parse(text: &str, tree: &Json) -> serde_json::Result<Self> {
        let is_feature = |members: &Members| {
            ["id", "name"]
                .iter()
                .any(|name| members.0.contains_key(*name))
        };
        if !matches!(tree, Json::Object(members) if is_feature(members)) {
            return serde_json::from_str(text).map(Self::Part);
        }
        let mut feature: Box<Feature> = serde_json::from_str(text)?;
        feature.other.0.shift_remove("schema_version");
        Ok(Self::Feature(feature))
    }
}

impl FeatureEntry {
    fn to_entry(&self) -> StoredEntry {
        let part = match self {
            Self::Feature(feature) => {
                let (name, is_whole) = slug(&feature.name);
                let named = format!("{}-{name}", feature.id);
                // Without a mark of its own, another feature may have the same name.
                let name = match &feature.mark {
                    Some(mark) => (format!("{}-{mark}", named.trim_end_matches('-')), false),
                    None => (named, !is_whole || name.is_empty()),
                };
                return entry(feature.id.clone(), name, self);
            }
            Self::Part(part) => part,
        };
        let (key, name) = match (
            part.retired.first(),
            part.not_adopted.first(),
            part.amendments.first(),
        ) {
            (Some(id), ..) => (id.clone(), (format!("{id}-removed"), false)),
            (_, Some(name), _) => (
                format!("not adopted {name}"),
                ("not-adopted".to_owned(), true),
            ),
            (_, _, Some(one)) => {
                let name = format!("amendment-{}", slug(&one.reason).0);
                (format!("amendment {} {}", one.at, one.reason), (name, true))
            }
            _ => ("other".to_owned(), ("other".to_owned(), false)),
        };
        let mut entry = entry(key, name, self);
        entry.value.0.shift_remove("features");
        entry
    }
}

/// How the features are kept.
pub(super) const ENTRIES: Entries<FeaturesFile> = Entries {
    folder: FEATURES_ENTRIES,
    join,
    split,
};

fn split(file: &FeaturesFile) -> Vec<StoredEntry> {
    let mut marked = file.clone();
    for blockers in marked
        .features
        .iter_mut()
        .filter_map(|feature| feature.blocked_by.as_mut())
    {
        blockers.rename(|id| Some(file.reference(id)));
    }
    items(marked).iter().map(FeatureEntry::to_entry).collect()
}

fn items(mut file: FeaturesFile) -> Vec<FeatureEntry> {
    let part = || FeaturesFile::skeleton();
    let features = std::mem::take(&mut file.features)
        .into_iter()
        .map(|one| FeatureEntry::Feature(Box::new(one)));
    let mut parts: Vec<_> = file
        .retired
        .into_iter()
        .map(|id| FeaturesFile {
            retired: vec![id],
            ..part()
        })
        .collect();
    parts.extend(file.not_adopted.into_iter().map(|name| FeaturesFile {
        not_adopted: vec![name],
        ..part()
    }));
    parts.extend(file.amendments.into_iter().map(|one| FeaturesFile {
        amendments: vec![one],
        ..part()
    }));
    if !file.other.is_empty() {
        parts.push(FeaturesFile {
            other: file.other,
            ..part()
        });
    }
    features
        .chain(parts.into_iter().map(FeatureEntry::Part))
        .collect()
}

/// Makes the document. Of two features with one id the later one gets the next number.
fn join(files: &[EntryFile], foreign: Option<FeaturesFile>) -> Joined<FeaturesFile> {
    let mut joined = Joined {
        document: FeaturesFile::skeleton(),
        places: HashMap::new(),
        damaged: Vec::new(),
        spent: Vec::new(),
    };
    let mut all = Vec::new();
    for (at, file) in files
        .iter()
        .enumerate()
        .filter(|(_, file)| !file.is_markdown())
    {
        match decode::<FeatureEntry>(&file.bytes) {
            Ok((item, is_newer)) => all.push((
                Some(EntryPlace {
                    file: at,
                    is_newer,
                    ..EntryPlace::default()
                }),
                item,
            )),
            Err(why) => joined.damaged.push((at, why)),
        }
    }
    if let Some(mut foreign) = foreign {
        joined
            .document
            .schema_version
            .clone_from(&foreign.schema_version);
        foreign.keep_order();
        all.extend(items(foreign).into_iter().map(|item| (None, item)));
    }
    let ids = |item: &FeatureEntry| match item {
        FeatureEntry::Feature(feature) => vec![feature.id.clone()],
        FeatureEntry::Part(part) => part.retired.clone(),
    };
    let mut used: BTreeSet<String> = all.iter().flat_map(|(_, item)| ids(item)).collect();
    // A number that one branch gave and took back stands for another branch's feature.
    all.sort_by_key(|(_, item)| match item {
        FeatureEntry::Feature(feature) => (false, feature.created_at),
        FeatureEntry::Part(_) => (true, None),
    });
    let mut titles: HashMap<String, (String, Option<String>)> = HashMap::new();
    for (mut place, item) in all {
        let key = item.to_entry().key;
        let file = &mut joined.document;
        let key = match item {
            FeatureEntry::Feature(mut feature) => {
                let title = id_of(std::iter::once(feature.name.as_str()));
                match titles.get(&feature.id) {
                    Some((other, mark))
                        if *other == title || mark.is_some() && *mark == feature.mark =>
                    {
                        // Its file changes, and goes, with the other one.
                        joined.places.entry(key).or_default().extend(place);
                        continue;
                    }
                    Some(_) => {
                        let next = next_id(&feature.id, &used);
                        used.insert(next.clone());
                        feature.renumber(next);
                        place = place.map(|place| EntryPlace {
                            is_renamed: true,
                            ..place
                        });
                    }
                    None => {}
                }
                let id = feature.id.clone();
                titles.insert(id.clone(), (title, feature.mark.clone()));
                file.features.push(*feature);
                id
            }
            FeatureEntry::Part(mut part) => {
                part.retired
                    .retain(|id| !titles.contains_key(id) && !file.retired.contains(id));
                part.not_adopted
                    .retain(|name| !file.not_adopted.contains(name));
                part.amendments.retain(|one| !file.amendments.contains(one));
                if part == FeaturesFile::skeleton() {
                    continue;
                }
                file.retired.append(&mut part.retired);
                file.not_adopted.append(&mut part.not_adopted);
                file.amendments.append(&mut part.amendments);
                file.other.0.extend(part.other.0);
                key
            }
        };
        if let Some(place) = place {
            joined.places.entry(key).or_default().push(place);
        }
    }
    let unresolved = joined.document.clone();
    for blockers in joined
        .document
        .features
        .iter_mut()
        .filter_map(|feature| feature.blocked_by.as_mut())
    {
        blockers.rename(|id| Some(unresolved.resolve(id)));
    }
    joined
        .document
        .features
        .sort_by(|a, b| a.order().cmp(&b.order()));
    joined
        .document
        .amendments
        .sort_by_key(|amendment| amendment.at);
    joined
}

impl Feature {
    /// Returns by what it is ordered: its place, then its number.
    fn order(&self) -> (u32, &str, u64) {
        let (prefix, number) = split_id(&self.id).unwrap_or((&self.id, 0));
        (self.place.unwrap_or(u32::MAX), prefix, number)
    }

    /// Gives it another id.
    ///
    /// Evidence that it works is dropped, because it names the old id, and `passing` becomes
    /// `failing`.
    fn renumber(&mut self, id: String) {
        if let Some(blockers) = &mut self.blocked_by {
            blockers.rename(|name| (name == self.id).then(|| id.clone()));
        }
        self.aliases.push(std::mem::replace(&mut self.id, id));
        self.evidence = None;
        if self.status == Status::Passing {
            self.status = Status::Failing;
        }
    }
}

impl FeaturesFile {
    /// Gives the features their places, if the order of their ids is another one.
    fn keep_order(&mut self) {
        if !self.features.is_sorted_by(|a, b| a.order() <= b.order()) {
            for (place, feature) in (1..).zip(&mut self.features) {
                feature.place = Some(place);
            }
        }
    }
}

/// Returns the next id with the prefix of an id.
fn next_id(id: &str, used: &BTreeSet<String>) -> String {
    let prefix = id.rsplit_once('-').map_or(id, |(prefix, _)| prefix);
    let numbers = used
        .iter()
        .filter_map(|id| split_id(id))
        .filter(|(other, _)| *other == prefix);
    let highest = numbers.map(|(_, number)| number).max().unwrap_or(0);
    format!("{prefix}-{:03}", highest.saturating_add(1))
}

#[cfg(test)]
mod tests;
