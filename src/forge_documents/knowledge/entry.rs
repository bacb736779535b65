//! What was learned, a file for each.

use std::borrow::Cow;
use std::collections::HashMap;

use helmdeck_forge_files::files::{
    self, Document, Entries, EntryFile, EntryPlace, Joined, StoredEntry, decode,
};
use helmdeck_forge_files::json::{self, Json, Members};
use helmdeck_forge_files::layout::KNOWLEDGE_ENTRIES;
use helmdeck_forge_files::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{
    Decision, Failed, FullInvariant, Invariant, KnowledgeEntry, KnowledgeFile, Patterns,
    Successful, Trace,
};
use super::text;
use crate::entries::{entry, slug};
use crate::merge::union;

/// An entry of the knowledge, as its file has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LearningEntry {
    /// Something that works.
    Successful(Successful),
    /// Something that does not.
    Failed(Failed),
    /// Something that was decided.
    Decision(Decision),
    /// Something that must always hold.
    Invariant(Box<FullInvariant>),
    /// Members that this version does not know, in a document with them alone.
    Part(KnowledgeFile),
}

impl Document for LearningEntry {
    const PATH: &'static str = KNOWLEDGE_ENTRIES;

    fn skeleton() -> Self {
        Self::Part(KnowledgeFile::skeleton())
    }

    fn check(&self) -> Result<(), String> {
        if matches!(self, Self::Part(part) if part.entries().next().is_some()) {
            return Err("expected one entry, without a list".to_owned());
        }
        let texts = self
            .view()
            .map(|view| view.texts().to_vec())
            .unwrap_or_default();
        texts
            .into_iter()
            .try_for_each(|(name, value)| text::check(name, value, text::limit(name)))
    }

    fn parse(text: &str, tree: &Json) -> serde_json::Result<Self> {
        let Json::Object(members) = tree else {
            return serde_json::from_str(text).map(Self::Part);
        };
        let has = |name: &str| members.0.contains_key(name);
        let mut text = Cow::Borrowed(text);
        if has("context") && !has("learned_at") {
            let mut members = members.clone();
            members.0.insert(
                "learned_at".to_owned(),
                Json::String(Time::UNKNOWN.to_string()),
            );
            text = Cow::Owned(String::from_utf8_lossy(&json::print(&members)?).into_owned());
        }
        let mut item = match () {
            () if has("approach") => Self::Successful(serde_json::from_str(&text)?),
            () if has("issue") => Self::Failed(serde_json::from_str(&text)?),
            () if has("decision") => Self::Decision(serde_json::from_str(&text)?),
            () if has("text") => Self::Invariant(serde_json::from_str(&text)?),
            () if has("context") => Self::Successful(serde_json::from_str(&text)?),
            () => return serde_json::from_str(&text).map(Self::Part),
        };
        let other = match &mut item {
            Self::Successful(one) => &mut one.other,
            Self::Failed(one) => &mut one.other,
            Self::Decision(one) => &mut one.other,
            Self::Invariant(one) => &mut one.other,
            Self::Part(_) => return Ok(item),
        };
        other.0.shift_remove("schema_version");
        Ok(item)
    }
}

impl LearningEntry {
    fn view(&self) -> Option<KnowledgeEntry<'_>> {
        match self {
            Self::Successful(one) => Some(one.into()),
            Self::Failed(one) => Some(one.into()),
            Self::Decision(one) => Some(one.into()),
            Self::Invariant(one) => Some(one.as_ref().into()),
            Self::Part(_) => None,
        }
    }

    /// Returns when it was learned, to be changed, unless it never says that.
    fn learned_at(&mut self) -> Option<&mut Time> {
        match self {
            Self::Successful(one) => Some(&mut one.learned_at),
            Self::Failed(one) => Some(&mut one.learned_at),
            Self::Decision(one) => Some(&mut one.learned_at),
            Self::Invariant(_) | Self::Part(_) => None,
        }
    }

    fn key(&self) -> String {
        self.view().map_or_else(
            || "other".to_owned(),
            |view| format!("{:?} {}", view.kind, view.id()),
        )
    }

    /// Joins two files of one entry: it was learned as often as both were.
    fn both(&self, other: &Self) -> Self {
        let tree = |entry: &Self| serde_json::from_slice::<Json>(&serde_json::to_vec(entry)?);
        let both = || {
            let tree = union(&tree(self)?, &tree(other)?);
            Self::parse(&serde_json::to_string(&tree)?, &tree)
        };
        both().unwrap_or_else(|_: serde_json::Error| self.clone())
    }

    fn to_entry(&self) -> StoredEntry {
        let texts: Vec<&str> = self
            .view()
            .iter()
            .flat_map(|view| view.texts().to_vec())
            .map(|(_, text)| text)
            .collect();
        let name = if texts.is_empty() {
            "other".to_owned()
        } else {
            slug(&texts.join(" ")).0
        };
        let name = if name.is_empty() {
            "learned".to_owned()
        } else {
            name
        };
        entry(self.key(), (name, !texts.is_empty()), self)
    }

    /// Reads what somebody wrote as Markdown: its first heading, or else its first line, says when
    /// it applies, and the rest what to do then. Without a rest the name of the file says when.
    ///
    /// # Errors
    /// Why it is nothing that can be learned.
    pub fn from_markdown(file: &EntryFile) -> Result<Self, String> {
        let source = files::text(&file.bytes).map_err(|damage| damage.what)?;
        let lines: Vec<&str> = source.lines().collect();
        let first = lines.iter().position(|line| line.starts_with('#'));
        let first = first.or_else(|| lines.iter().position(|line| !line.trim().is_empty()));
        let Some(first) = first else {
            return Err("it is empty".to_owned());
        };
        let title = lines[first].trim_start_matches('#').trim();
        let rest = [&lines[..first], &lines[first + 1..]].concat().join("\n");
        let name = file
            .path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".md")
            .replace(['-', '_'], " ");
        let (context, approach) = if rest.trim().is_empty() {
            (name.as_str(), title)
        } else {
            (title, rest.as_str())
        };
        let stored =
            |name: &str, value: &str| text::stored(name, value).map_err(|error| error.message);
        Ok(Self::Successful(Successful {
            context: stored("context", context)?,
            approach: stored("approach", approach)?,
            learned_at: file.modified,
            trace: Trace::default(),
            other: Members::default(),
        }))
    }
}

/// How the knowledge is kept.
pub(super) const ENTRIES: Entries<KnowledgeFile> = Entries {
    folder: KNOWLEDGE_ENTRIES,
    join,
    split,
};

fn split(file: &KnowledgeFile) -> Vec<StoredEntry> {
    items(file.clone())
        .iter()
        .map(LearningEntry::to_entry)
        .collect()
}

fn items(file: KnowledgeFile) -> Vec<LearningEntry> {
    let mut all: Vec<LearningEntry> = file
        .patterns
        .successful
        .into_iter()
        .map(LearningEntry::Successful)
        .collect();
    all.extend(file.patterns.failed.into_iter().map(LearningEntry::Failed));
    all.extend(file.decisions.into_iter().map(LearningEntry::Decision));
    all.extend(
        file.invariants
            .into_iter()
            .map(|one| LearningEntry::Invariant(one.into_full())),
    );
    if !file.other.is_empty() || !file.patterns.other.is_empty() {
        let patterns = Patterns {
            other: file.patterns.other,
            ..Patterns::default()
        };
        all.push(LearningEntry::Part(KnowledgeFile {
            patterns,
            other: file.other,
            ..KnowledgeFile::skeleton()
        }));
    }
    all
}

/// Makes the document: what was learned first comes first. What two branches learned alike is one
/// entry.
fn join(files: &[EntryFile], foreign: Option<KnowledgeFile>) -> Joined<KnowledgeFile> {
    let mut joined = Joined {
        document: KnowledgeFile::skeleton(),
        places: HashMap::new(),
        damaged: Vec::new(),
        spent: Vec::new(),
    };
    let mut all = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let read = if file.is_markdown() {
            // One that is odd stays as it is, and the doctor names it.
            LearningEntry::from_markdown(file)
                .ok()
                .map(|item| (item, false))
        } else {
            decode::<LearningEntry>(&file.bytes)
                .map_err(|why| joined.damaged.push((at, why)))
                .ok()
        };
        let Some((mut item, is_newer)) = read else {
            continue;
        };
        let is_by_hand = file.is_markdown()
            || item
                .learned_at()
                .is_some_and(|learned_at| *learned_at == Time::UNKNOWN);
        if let Some(learned_at) = item
            .learned_at()
            .filter(|learned_at| **learned_at == Time::UNKNOWN)
        {
            *learned_at = file.modified;
        }
        all.push((
            Some(EntryPlace {
                file: at,
                is_newer,
                is_by_hand,
                is_renamed: false,
            }),
            item,
        ));
    }
    if let Some(foreign) = foreign {
        joined
            .document
            .schema_version
            .clone_from(&foreign.schema_version);
        all.extend(items(foreign).into_iter().map(|item| (None, item)));
    }
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut entries: Vec<(LearningEntry, Vec<EntryPlace>)> = Vec::new();
    for (place, item) in all {
        match (known.get(&item.key()), place) {
            (None, place) => {
                known.insert(item.key(), entries.len());
                entries.push((item, place.into_iter().collect()));
            }
            (Some(_), Some(place)) if files[place.file].is_markdown() => {
                joined.spent.push(place.file)
            }
            (Some(at), Some(place)) => {
                let (entry, places) = &mut entries[*at];
                *entry = entry.both(&item);
                places.push(place);
            }
            // The file of an entry counts, and not the document from which it came.
            (Some(_), None) => {}
        }
    }
    for (entry, places) in entries {
        if !places.is_empty() {
            joined.places.insert(entry.key(), places);
        }
        entry.add_to(&mut joined.document);
    }
    joined
        .document
        .patterns
        .successful
        .sort_by_key(|one| one.learned_at);
    joined
        .document
        .patterns
        .failed
        .sort_by_key(|one| one.learned_at);
    joined.document.decisions.sort_by_key(|one| one.learned_at);
    joined.document.break_rings();
    joined
}

impl LearningEntry {
    fn add_to(self, file: &mut KnowledgeFile) {
        match self {
            Self::Successful(one) => file.patterns.successful.push(one),
            Self::Failed(one) => file.patterns.failed.push(one),
            Self::Decision(one) => file.decisions.push(one),
            Self::Invariant(one) => file.invariants.push(Invariant::from_full(one)),
            Self::Part(part) => {
                file.other.0.extend(part.other.0);
                file.patterns.other.0.extend(part.patterns.other.0);
            }
        }
    }
}

impl Invariant {
    fn into_full(self) -> Box<FullInvariant> {
        match self {
            Self::Full(full) => full,
            Self::Text(text) => Box::new(FullInvariant {
                text,
                check: None,
                severity: None,
                trace: Trace::default(),
                other: Members::default(),
            }),
        }
    }

    /// Makes an invariant: a text alone if nothing more is known.
    fn from_full(full: Box<FullInvariant>) -> Self {
        let is_text = full.check.is_none()
            && full.severity.is_none()
            && full.trace == Trace::default()
            && full.other.is_empty();
        if is_text {
            Self::Text(full.text)
        } else {
            Self::Full(full)
        }
    }
}

impl KnowledgeFile {
    /// Ends each ring of entries that supersede each other, as two branches can leave them: the
    /// last one learned holds.
    fn break_rings(&mut self) {
        let links: HashMap<String, (String, Option<Time>)> = self
            .entries()
            .filter_map(|entry| {
                Some((
                    entry.id(),
                    (entry.trace.superseded_by.clone()?, entry.learned_at),
                ))
            })
            .collect();
        let holds = |id: &String| {
            let mut ring = vec![(links[id].1, id)];
            let mut next = &links[id].0;
            while let Some((by, learned_at)) = links
                .get(next)
                .filter(|_| next != id && ring.len() <= links.len())
            {
                ring.push((*learned_at, next));
                next = by;
            }
            next == id && ring.iter().max().is_some_and(|(_, last)| *last == id)
        };
        let holding: Vec<String> = links.keys().filter(|id| holds(id)).cloned().collect();
        for id in holding {
            let at = self.entries().position(|entry| entry.id() == id);
            if let Some(trace) = at.and_then(|at| self.trace_mut(at)) {
                trace.superseded_by = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
