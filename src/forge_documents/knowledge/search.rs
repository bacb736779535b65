//! Full-text search of knowledge: BM25 over the texts and paths of each entry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Kind, KnowledgeEntry, KnowledgeFile};
use super::text;
use helmdeck_forge_files::time::Time;

/// How soon more of the same word counts less.
const K1: f64 = 1.2;
/// How much a long entry must have more of a word.
const B: f64 = 0.75;

/// Search query.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// The words to search for. Without any, the newest entries are found.
    ///
    /// If no entry has one of the words, they may be an id, or at least its first 6 characters:
    /// then that entry is found, even if it is superseded.
    #[serde(default)]
    pub query: String,
    /// How many entries to return at most; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only entries of these kinds; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Whether superseded entries are included.
    #[serde(default)]
    pub superseded: bool,
}

/// Search result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchHit {
    /// The entries, best first. Equally good ones: the newest first, then by id.
    pub entries: Vec<Hit>,
    /// How many there are in all.
    pub total: usize,
    /// The etag of the file, for a later change; none if the file is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// An entry that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hit {
    /// The entry's id.
    pub id: String,
    /// What kind of entry it is.
    pub kind: Kind,
    /// How well it fits: greater is better, 0 without words and for an id.
    pub score: f64,
    /// Its texts, by name.
    pub texts: std::collections::BTreeMap<String, String>,
    /// When it was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned_at: Option<Time>,
    /// When it was last confirmed that it still holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_confirmed_at: Option<Time>,
    /// The files and folders it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// How often it was learned.
    pub seen: u64,
    /// The id of the entry that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
}

/// The longest query that is read, in bytes.
const LONGEST: usize = 4_096;
/// How much of an id is enough to find an entry, in bytes.
const LEAST_OF_ID: usize = 6;
/// How many words of it count, each once.
const MOST_TERMS: usize = 64;

impl KnowledgeFile {
    /// Returns the entries that fit some words best.
    #[must_use]
    pub fn search(&self, search: &Search) -> SearchHit {
        // A query has few words: to look at each is faster than to hash every word of every entry.
        let mut terms: Vec<String> = Vec::new();
        let mut end = search.query.len().min(LONGEST);
        while !search.query.is_char_boundary(end) {
            end -= 1;
        }
        text::words(&search.query[..end], |word| {
            if terms.len() < MOST_TERMS && !terms.iter().any(|term| term == word) {
                terms.push(word.to_owned());
            }
        });
        // How often each word is in each entry, and how long that is.
        let mut documents = Vec::new();
        let mut holding = vec![0_u32; terms.len()];
        let mut words = 0_u64;
        for entry in self.entries() {
            if (entry.trace.superseded_by.is_some() && !search.superseded)
                || !(search.kinds.is_empty() || search.kinds.contains(&entry.kind))
            {
                continue;
            }
            let mut counts = vec![0_u32; terms.len()];
            let mut length = 0_u32;
            let texts = entry.texts().iter().map(|(_, text)| *text);
            for text in texts.chain(entry.trace.paths.iter().map(String::as_str)) {
                text::words(text, |word| {
                    length += 1;
                    if let Some(term) = terms.iter().position(|term| term == word) {
                        counts[term] += 1;
                    }
                });
            }
            for (holding, count) in holding.iter_mut().zip(&counts) {
                *holding += u32::from(*count > 0);
            }
            words += u64::from(length);
            documents.push((entry, counts, length));
        }
        let number = documents.len() as f64;
        let average = (words as f64 / number.max(1.0)).max(1.0);
        let mut hits: Vec<(f64, KnowledgeEntry<'_>, String)> = Vec::new();
        for (entry, counts, length) in documents {
            let mut score = 0.0;
            for (count, holding) in counts.iter().zip(&holding) {
                if *count > 0 {
                    let (count, holding) = (f64::from(*count), f64::from(*holding));
                    let rarity = (1.0 + (number - holding + 0.5) / (holding + 0.5)).ln();
                    score += rarity * count * (K1 + 1.0)
                        / (count + K1 * (1.0 - B + B * f64::from(length) / average));
                }
            }
            if score > 0.0 || terms.is_empty() {
                hits.push((score, entry, String::new()));
            }
        }
        for (_, entry, id) in &mut hits {
            *id = entry.id();
        }
        if hits.is_empty() {
            hits = self.by_id(search);
        }
        let total = hits.len();
        hits.sort_by(|(left, a, a_id), (right, b, b_id)| {
            right
                .total_cmp(left)
                .then_with(|| b.fresh_at().cmp(&a.fresh_at()))
                .then_with(|| a_id.cmp(b_id))
        });
        hits.truncate(search.limit.unwrap_or(10));
        let entries = hits
            .into_iter()
            .map(|(score, entry, id)| Hit::of(&entry, id, score))
            .collect();
        SearchHit {
            entries,
            total,
            etag: None,
        }
    }

    /// Returns the entries whose id a query is or begins.
    fn by_id(&self, search: &Search) -> Vec<(f64, KnowledgeEntry<'_>, String)> {
        let begin = search.query.trim();
        if begin.len() < LEAST_OF_ID {
            return Vec::new();
        }
        let entries = self
            .entries()
            .filter(|entry| search.kinds.is_empty() || search.kinds.contains(&entry.kind));
        let found = entries
            .map(|entry| (entry.id(), entry))
            .filter(|(id, _)| id.starts_with(begin));
        found.map(|(id, entry)| (0.0, entry, id)).collect()
    }
}

impl Hit {
    fn of(entry: &KnowledgeEntry<'_>, id: String, score: f64) -> Self {
        Self {
            id,
            kind: entry.kind,
            // Four decimals, so that a rounding error in the last digits does not show.
            score: (score * 10_000.0).round() / 10_000.0,
            texts: entry
                .texts()
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
            learned_at: entry.learned_at,
            last_confirmed_at: entry.trace.last_confirmed_at,
            paths: entry.trace.paths.clone(),
            seen: entry.trace.seen.unwrap_or(1),
            superseded_by: entry.trace.superseded_by.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::edit::{Learning, What};

    fn file(all: &[(&str, &str)]) -> KnowledgeFile {
        let mut file: KnowledgeFile = serde_json::from_str(r#"{"schema_version":"1.0"}"#).unwrap();
        for (at, (context, approach)) in all.iter().enumerate() {
            let now = Time::parse(&format!("2025-12-24T10:{at:02}:00Z")).unwrap();
            let what = What::Successful {
                context: (*context).into(),
                approach: (*approach).into(),
            };
            file.add(&Learning::new(what), now).unwrap();
        }
        file
    }

    fn contexts(file: &KnowledgeFile, query: &str) -> Vec<String> {
        let found = file.search(&Search {
            query: query.into(),
            ..Search::default()
        });
        found
            .entries
            .into_iter()
            .map(|hit| hit.texts["context"].clone())
            .collect()
    }

    #[test]
    fn a_rare_word_counts_more_than_a_common_one() {
        let file = file(&[
            ("one", "run the tests of the crate"),
            ("two", "run the tests, then the murmur vectors"),
            ("three", "run the tests twice"),
        ]);
        assert_eq!(contexts(&file, "tests MURMUR")[0], "two");
        assert_eq!(contexts(&file, "murmur"), ["two"]);
        assert!(contexts(&file, "nothing").is_empty());
    }

    #[test]
    fn paths_are_searched_by_their_parts() {
        let mut file = file(&[("a", "b"), ("c", "d")]);
        file.patterns.successful[0].trace.paths =
            vec!["crates/sx9-harness/src/nats/subjects.rs".into()];
        assert_eq!(contexts(&file, "subjects.rs"), ["a"]);
    }

    #[test]
    fn equally_good_ones_come_newest_first_and_always_alike() {
        let file = file(&[("old", "same"), ("mid", "same"), ("new", "same")]);
        assert_eq!(contexts(&file, "same"), ["new", "mid", "old"]);
        assert_eq!(
            contexts(&file, ""),
            ["new", "mid", "old"],
            "without words too"
        );
        let mut shuffled = file.clone();
        shuffled.patterns.successful.reverse();
        assert_eq!(contexts(&shuffled, "same"), contexts(&file, "same"));
        let mut together = file;
        for entry in &mut together.patterns.successful {
            entry.learned_at = Time::parse("2025-12-24T10:00:00Z").unwrap();
        }
        let by_id = contexts(&together, "same");
        together.patterns.successful.rotate_left(1);
        assert_eq!(contexts(&together, "same"), by_id);
    }

    #[test]
    fn what_is_superseded_is_found_only_when_asked_for() {
        let mut file = file(&[("old", "same"), ("new", "same")]);
        let old = file
            .patterns
            .successful
            .iter_mut()
            .find(|entry| entry.context == "old")
            .unwrap();
        old.trace.superseded_by = Some("x".into());
        assert_eq!(contexts(&file, "same"), ["new"]);
        let search = Search {
            query: "same".into(),
            superseded: true,
            limit: Some(1),
            kinds: vec![],
        };
        let found = file.search(&search);
        assert_eq!((found.total, found.entries.len()), (2, 1));
        let search = Search {
            kinds: vec![Kind::Failed],
            ..Search::default()
        };
        assert_eq!(file.search(&search).total, 0);
    }

    #[test]
    fn an_entry_is_found_by_its_id_where_no_text_has_the_word() {
        let mut file = file(&[("first", "a"), ("second", "b")]);
        let id = file.entries().next().unwrap().id();
        for query in [id.as_str(), &id[..6], &format!(" {} ", &id[..8])] {
            let found = file.search(&Search {
                query: query.into(),
                ..Search::default()
            });
            assert_eq!(
                (
                    found.total,
                    found.entries[0].id.as_str(),
                    found.entries[0].score
                ),
                (1, &*id, 0.0),
                "{query}"
            );
        }
        assert!(
            contexts(&file, &id[..5]).is_empty(),
            "too little may begin any id"
        );
        assert!(contexts(&file, &format!("{id}x")).is_empty());
        let failed = Search {
            query: id.clone(),
            kinds: vec![Kind::Failed],
            ..Search::default()
        };
        assert_eq!(file.search(&failed).total, 0);
        file.patterns.successful[0].trace.superseded_by = Some("x".into());
        assert_eq!(
            contexts(&file, &id),
            ["first"],
            "who names it is told what took its place"
        );
        // Words come first.
        file.patterns.successful[1].context = format!("second, after {id}");
        assert_eq!(contexts(&file, &id), [format!("second, after {id}")]);
    }
}
