//! Proposals to merge near-duplicate entries. A person must approve them.

use std::collections::{BTreeSet, HashMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Kind, KnowledgeFile, Trace};
use super::text;
use helmdeck_forge_files::error::{Error, Result};

/// How many entries there may be before it is too many.
pub const MOST_ENTRIES: usize = 500;
/// How large the file may be before it is too large, in bytes.
pub const MOST_BYTES: usize = 256 << 10;
/// How much two entries must have in common, in hundredths of their words.
const ALIKE: usize = 70;

/// Size of knowledge that is too large to be read. It is a hint to compact it, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Oversize {
    /// How many entries there are; more than 500 are too many.
    pub entries: usize,
    /// How large the file is in bytes; more than 262,144 are too many.
    pub bytes: usize,
}

/// Which entries could be merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proposal {
    /// The etag of the file that the proposal is about.
    ///
    /// An approval names it, so that only the merges that were shown are made.
    pub etag: String,
    /// The merges.
    pub merges: Vec<Merge>,
}

/// Merge of near-duplicate entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Merge {
    /// Their kind.
    pub kind: Kind,
    /// The one that stays: the last to be learned or confirmed.
    pub keep: String,
    /// Its text.
    pub text: String,
    /// The entries that are removed. Their metadata is added to the one that stays.
    pub fold: Vec<Folded>,
}

/// An entry that would be merged into another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Folded {
    /// Its id.
    pub id: String,
    /// Its text.
    pub text: String,
    /// How much it has in common with the one that stays, in hundredths.
    pub alike: usize,
}

/// Result of a compaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compacted {
    /// The merges that were made.
    pub merges: Vec<Merge>,
    /// How many entries there were.
    pub before: usize,
    /// How many there are.
    pub after: usize,
}

impl KnowledgeFile {
    /// Returns the size of the knowledge if it is too large.
    #[must_use]
    pub fn oversize(&self, bytes: usize) -> Option<Oversize> {
        let entries = self.entries().count();
        (entries > MOST_ENTRIES || bytes > MOST_BYTES).then_some(Oversize { entries, bytes })
    }

    /// Returns the merges of near-duplicate entries.
    ///
    /// Invariants, superseded entries and those that supersede others are not merged.
    pub fn alike(&self) -> Vec<Merge> {
        let targets: HashSet<&str> = self.entries().filter_map(|entry| entry.trace.superseded_by.as_deref()).collect();
        let mut all = Vec::new();
        for entry in self.entries() {
            let id = entry.id();
            if entry.kind == Kind::Invariant || entry.trace.superseded_by.is_some() || targets.contains(id.as_str()) {
                continue;
            }
            let mut words = BTreeSet::new();
            let whole = entry.texts().iter().map(|(_, text)| *text).collect::<Vec<_>>().join(" · ");
            text::words(&whole, |word| {
                words.insert(word.to_owned());
            });
            all.push((entry, id, whole, words));
        }
        // The last learned first: it is the one that stays.
        all.sort_by(|(a, a_id, ..), (b, b_id, ..)| b.fresh_at().cmp(&a.fresh_at()).then_with(|| a_id.cmp(b_id)));
        let mut gone = vec![false; all.len()];
        let mut merges = Vec::new();
        for at in 0..all.len() {
            if gone[at] {
                continue;
            }
            let (entry, id, whole, words) = &all[at];
            let mut fold = Vec::new();
            for (other, (candidate, other_id, text, others)) in all.iter().enumerate().skip(at + 1) {
                // Sets of so different a size cannot be alike.
                let (fewer, more) = (words.len().min(others.len()), words.len().max(others.len()));
                if gone[other] || candidate.kind != entry.kind || fewer * 100 < more * ALIKE {
                    continue;
                }
                let both = words.intersection(others).count();
                let alike = both * 100 / (words.len() + others.len() - both).max(1);
                if alike >= ALIKE {
                    gone[other] = true;
                    fold.push(Folded { id: other_id.clone(), text: text.clone(), alike });
                }
            }
            if !fold.is_empty() {
                merges.push(Merge { kind: entry.kind, keep: id.clone(), text: whole.clone(), fold });
            }
        }
        merges
    }

    /// Makes the proposed merges whose entry that stays is named; all of them if none is.
    pub fn compact(&mut self, approved: &[String]) -> Result<Compacted> {
        let before = self.entries().count();
        let proposed = self.alike();
        if let Some(unknown) = approved.iter().find(|id| !proposed.iter().any(|merge| merge.keep == **id)) {
            return Err(Error::not_found(format!("no merge into the entry {unknown:?} is proposed")));
        }
        let merges: Vec<Merge> =
            proposed.into_iter().filter(|merge| approved.is_empty() || approved.contains(&merge.keep)).collect();
        let mut ids = HashMap::new();
        for (at, entry) in self.entries().enumerate() {
            ids.insert((entry.kind, entry.id()), at);
        }
        let traces: Vec<Trace> = self.entries().map(|entry| entry.trace.clone()).collect();
        let mut fold = HashSet::new();
        for merge in &merges {
            let Some(trace) = ids.get(&(merge.kind, merge.keep.clone())).and_then(|at| self.trace_mut(*at)) else {
                continue;
            };
            trace.id = Some(merge.keep.clone());
            for folded in &merge.fold {
                let Some(other) = ids.get(&(merge.kind, folded.id.clone())).map(|at| &traces[*at]) else { continue };
                trace.seen = Some(trace.seen.unwrap_or(1).saturating_add(other.seen.unwrap_or(1)));
                trace.last_confirmed_at = trace.last_confirmed_at.max(other.last_confirmed_at);
                for path in &other.paths {
                    if !trace.paths.contains(path) {
                        trace.paths.push(path.clone());
                    }
                }
                fold.insert((merge.kind, folded.id.clone()));
            }
        }
        let stays: Vec<bool> = self.entries().map(|entry| !fold.contains(&(entry.kind, entry.id()))).collect();
        let mut stays = stays.into_iter();
        // In the order of `entries`.
        self.patterns.successful.retain(|_| stays.next().unwrap_or(true));
        self.patterns.failed.retain(|_| stays.next().unwrap_or(true));
        self.decisions.retain(|_| stays.next().unwrap_or(true));
        Ok(Compacted { merges, before, after: self.entries().count() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::edit::{Learning, What};
    use helmdeck_forge_files::time::Time;

    fn file() -> KnowledgeFile {
        let mut file: KnowledgeFile =
            serde_json::from_str(r#"{"schema_version":"1.0","invariants":["a","a b"]}"#).unwrap();
        for (minute, approach) in [
            "add it to the subjects file and run all the tests",
            "something else entirely",
            "add it to the subjects file, then run all tests",
        ]
        .iter()
        .enumerate()
        {
            let what = What::Successful { context: "new subject".into(), approach: (*approach).into() };
            let mut learning = Learning::new(what);
            learning.paths = vec![format!("src/{minute}.rs")];
            file.add(&learning, Time::parse(&format!("2025-12-24T10:{minute:02}:00Z")).unwrap()).unwrap();
        }
        file
    }

    #[test]
    fn the_newest_of_entries_alike_stays_and_takes_over_what_is_known_of_the_others() {
        let mut file = file();
        let merges = file.alike();
        assert_eq!(merges.len(), 1);
        assert_eq!(merges[0].fold.len(), 1);
        assert_eq!(file.entries().find(|entry| entry.id() == merges[0].keep).unwrap().trace.paths, ["src/2.rs"]);
        let done = file.compact(&[]).unwrap();
        assert_eq!((done.before, done.after), (5, 4));
        let kept = &file.patterns.successful[1];
        assert_eq!(kept.trace.seen, Some(2));
        assert_eq!(kept.trace.paths, ["src/2.rs", "src/0.rs"]);
        assert_eq!(file.patterns.successful[0].approach, "something else entirely");
        assert!(file.alike().is_empty(), "nothing is left to merge");
    }

    #[test]
    fn only_what_was_approved_is_merged() {
        let mut file = file();
        assert!(file.compact(&["unknown".into()]).is_err());
        assert_eq!(file.entries().count(), 5);
        let keep = file.alike()[0].keep.clone();
        assert_eq!(file.compact(&[keep]).unwrap().merges.len(), 1);
    }

    #[test]
    fn what_was_superseded_is_not_merged() {
        let mut file = file();
        let ids: Vec<_> = file.entries().map(|entry| entry.id()).collect();
        file.patterns.successful[0].trace.superseded_by = Some(ids[2].clone());
        assert!(file.alike().is_empty());
    }

    #[test]
    fn too_much_is_one_more_than_the_limit() {
        let mut file = file();
        while file.entries().count() < MOST_ENTRIES {
            file.invariants.push(super::super::file::Invariant::Text("x".into()));
        }
        assert_eq!(file.oversize(MOST_BYTES), None);
        assert_eq!(file.oversize(MOST_BYTES + 1).unwrap().bytes, MOST_BYTES + 1);
        file.invariants.push(super::super::file::Invariant::Text("x".into()));
        assert_eq!(file.oversize(0).unwrap().entries, MOST_ENTRIES + 1);
    }
}
