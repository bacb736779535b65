//! Lessons that a commit adds.
//!
//! They are read from both sides, never from what a message claims.

use std::collections::HashSet;

use super::message::placeholder;
use crate::knowledge::KnowledgeFile;
use helmdeck_core::text;

/// Maximum number of new entries in a message.
const NAMED: usize = 20;
/// Maximum length of an entry, in characters.
const LONGEST: usize = 500;

/// Returns the first text of each new entry, in one line. A side that is absent has no entries.
pub(super) fn new_entries(old: Option<&KnowledgeFile>, new: Option<&KnowledgeFile>) -> Vec<String> {
    let Some(new) = new else { return Vec::new() };
    let known: HashSet<_> = old
        .iter()
        .flat_map(|file| file.entries().map(|entry| entry.id()))
        .collect();
    let mut all: Vec<String> = new
        .entries()
        .filter(|entry| !known.contains(&entry.id()))
        .filter_map(|entry| entry.texts().first().map(|(_, text)| one_line(text)))
        // A placeholder does not belong in a message.
        .filter(|text| !text.is_empty() && placeholder(text).is_none())
        .collect();
    let more = all.len().saturating_sub(NAMED);
    if more > 0 {
        all.truncate(NAMED);
        all.push(format!("{more} more entries of the knowledge"));
    }
    all
}

/// Returns a text as one line, cut to its length.
pub(super) fn one_line(text: &str) -> String {
    text::collapse_whitespace(text)
        .chars()
        .take(LONGEST)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(contexts: &[&str], invariants: &[&str]) -> KnowledgeFile {
        let entry = |context: &&str| {
            format!(
                r#"{{"context":"{context}","approach":"a","learned_at":"2025-12-24T10:00:00Z"}}"#
            )
        };
        let quoted = |text: &&str| format!("{text:?}");
        let text = format!(
            r#"{{"schema_version":"1.0","patterns":{{"successful":[{}],"failed":[]}},"invariants":[{}]}}"#,
            contexts.iter().map(entry).collect::<Vec<_>>().join(","),
            invariants.iter().map(quoted).collect::<Vec<_>>().join(",")
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn only_what_is_new_is_told() {
        let (old, new) = (
            file(&["one"], &["kept"]),
            file(&["one", "two  words", "[key insight]"], &["kept", "held"]),
        );
        assert_eq!(new_entries(Some(&old), Some(&new)), ["two words", "held"]);
        assert_eq!(new_entries(Some(&new), Some(&old)), Vec::<String>::new());
        assert_eq!(new_entries(None, Some(&old)), ["one", "kept"]);
        assert_eq!(new_entries(Some(&old), None).len(), 0);
        let names: Vec<String> = (0..25).map(|number| format!("n{number}")).collect();
        let many = new_entries(
            None,
            Some(&file(
                &names.iter().map(String::as_str).collect::<Vec<_>>(),
                &[],
            )),
        );
        assert_eq!(
            (many.len(), many[20].as_str()),
            (21, "5 more entries of the knowledge")
        );
    }
}
