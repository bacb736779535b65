//! Which notes of a project a query means, if queries are set to filter.

use std::collections::BTreeSet;
use std::path::Path;

use crate::readers::{Note, Vault};

use super::gather::{From, Source};
use super::trouble::Troubles;

/// Maximum length searched of all notes, in bytes.
const MOST: usize = 8 << 20;
/// Maximum length searched of each note, in bytes.
const MOST_OF_EACH: usize = 16 << 10;
/// Minimum cost of a note against the whole, in bytes: to open one takes time, too.
const LEAST: usize = 512;

/// Filters notes by the words of a query, and sorts those with most of them first.
///
/// Notes without any of the words are left out. A word counts most in the label of a note, less in
/// its tags, least in its text. Notes that were not searched come last, in their order.
pub(super) fn filter(
    sources: &mut Vec<Source>,
    vault: Option<&Vault<'_>>,
    query: &str,
    troubles: &mut Troubles,
) {
    let wanted = words(query);
    if wanted.is_empty() {
        return;
    }
    let mut left = MOST;
    let (mut scored, mut others) = (Vec::new(), Vec::new());
    for source in std::mem::take(sources) {
        if left == 0 {
            others.push(source);
            continue;
        }
        let read = match &source.from {
            From::File(path) => match look(vault, path, troubles) {
                Some(note) => Some(note),
                None => continue,
            },
            From::Note(_) | From::Text(_) => None,
        };
        let (tags, text) = match (&read, &source.from) {
            (Some(note), _) | (None, From::Note(note)) => (note.tags().join(" "), note.text()),
            (None, From::Text(text)) => (String::new(), text.as_str()),
            (None, From::File(_)) => Default::default(),
        };
        if let Some(note) = &read {
            left = left.saturating_sub(note.bytes.max(LEAST));
        }
        // What is before it is the project and the folder.
        let name = source.label.rsplit('/').next().unwrap_or(&source.label);
        let hits = |text: &str| Text::of(text).hits(&wanted);
        let score = 4 * hits(name) + 3 * hits(&tags) + hits(text);
        if score > 0 {
            // What was read to its end need not be read again.
            let whole = read.filter(|note| note.whole && !note.lossy);
            let from = whole.map_or(source.from, From::Note);
            scored.push((
                score,
                Source {
                    label: source.label,
                    from,
                },
            ));
        }
    }
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    sources.extend(scored.into_iter().map(|(_, source)| source).chain(others));
}

/// Reads the start of a note.
fn look(vault: Option<&Vault<'_>>, path: &Path, troubles: &mut Troubles) -> Option<Note> {
    match vault?.head(path, MOST_OF_EACH) {
        Ok(note) => note,
        Err(error) => {
            troubles.add(path.display(), error);
            None
        }
    }
}

/// A text to search for words.
struct Text {
    lower: String,
    words: BTreeSet<String>,
}

impl Text {
    fn of(text: &str) -> Self {
        Self {
            lower: text.to_lowercase(),
            words: words(text),
        }
    }

    /// Returns how many of the words it contains.
    fn hits(&self, wanted: &BTreeSet<String>) -> usize {
        let holds = |word: &&String| {
            if runs_on(word) {
                self.lower.contains(*word)
            } else {
                self.words.contains(*word)
            }
        };
        wanted.iter().filter(holds).count()
    }
}

/// Returns whether a word belongs to a script without blanks between words.
///
/// Such a word is looked for anywhere.
fn runs_on(word: &str) -> bool {
    // Thai and all after it, but for Latin and Greek letters with signs.
    word.contains(|character: char| {
        character >= '\u{e00}' && !('\u{1e00}'..='\u{1fff}').contains(&character)
    })
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_scripts_with_and_without_blanks() {
        let hits = |query: &str, text: &str| Text::of(text).hits(&words(query));
        assert_eq!(hits("Queue, queue!", "the QUEUE is here"), 1);
        assert_eq!(hits("queue", "queues"), 0);
        assert_eq!(hits("設計", "記憶の設計について決めた"), 1);
        assert_eq!(hits("설계", "설계를 정했다"), 1);
        assert_eq!(hits("ออกแบบ", "การออกแบบระบบ"), 1);
        assert_eq!(hits("việt", "tiếng Việt"), 1);
        assert_eq!(hits("việ", "tiếng Việt"), 0);
    }
}
