//! Limits, normal form and ids of texts.

use helmdeck_core::text::collapse_whitespace;
use unicode_normalization::UnicodeNormalization;

use helmdeck_forge_files::error::{Error, Result};
use helmdeck_forge_files::triv;

/// Returns how many characters a text of a name may have.
pub fn limit(name: &str) -> usize {
    if name == "context" { 500 } else { 4_000 }
}

/// Checks a text: not empty, at most `limit` characters, no control characters.
pub fn check(name: &str, text: &str, limit: usize) -> Result<(), String> {
    let count = text.chars().count();
    if text.trim().is_empty() {
        Err(format!("{name} is empty"))
    } else if count > limit {
        Err(format!("{name} has {count} characters, more than {limit}"))
    } else if text
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
    {
        Err(format!("{name} has a control character in it"))
    } else {
        Ok(())
    }
}

/// Returns the stored form of a text: NFC, without blanks around it, lines ended by a line feed.
///
/// # Errors
/// `Usage` for a text that is empty, too long, or holds control characters.
pub fn stored(name: &str, text: &str) -> Result<String> {
    let text: String = text.replace("\r\n", "\n").nfc().collect();
    let text = text.trim();
    check(name, text, limit(name))
        .map_err(|why| Error::usage(format!("{why}: shorten or mend the text")))?;
    Ok(text.to_owned())
}

/// Returns the id of an entry with these texts: their SCH.
///
/// The texts are in NFC, one on each line, with runs of blanks replaced by one blank.
pub fn id<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<String> = texts
        .map(|text| collapse_whitespace(&text.nfc().collect::<String>()))
        .collect();
    triv::sch(lines.join("\n").as_bytes())
}

/// Passes on the words of a text, in lower case: runs of letters and digits.
///
/// Nothing is allocated for words that are in lower case.
pub fn words(text: &str, mut with: impl FnMut(&str)) {
    let mut lower = String::new();
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        if word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            with(word);
        } else {
            lower.clear();
            lower.extend(word.chars().flat_map(char::to_lowercase));
            with(&lower);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_stored_trimmed_and_composed() {
        assert_eq!(
            stored("context", "  e\u{301}te\u{301}\r\n x ").unwrap(),
            "été\n x"
        );
        for wrong in ["", " \n ", "a\u{0}b", "\u{1b}[31m"] {
            assert!(stored("context", wrong).is_err(), "{wrong:?}");
        }
        stored("context", &format!(" {} ", "e\u{301}".repeat(500))).unwrap();
        assert!(stored("context", &"é".repeat(501)).is_err());
        stored("approach", &"x".repeat(4_000)).unwrap();
        assert!(stored("approach", &"x".repeat(4_001)).is_err());
    }

    #[test]
    fn composed_and_decomposed_texts_have_one_id() {
        let id = |texts: &[&str]| id(texts.iter().copied());
        assert_eq!(id(&["été", "a  b"]), id(&["e\u{301}te\u{301}", " a\nb "]));
        assert_ne!(id(&["a b", "c"]), id(&["a", "b c"]));
        assert_ne!(id(&["a"]), id(&["A"]));
        assert_eq!(id(&["hello"]), "55s8mvcf9diit4jklel4a08px");
    }

    #[test]
    fn words_are_in_lower_case() {
        let mut all = Vec::new();
        words("Add to sx9-harness/src/NATS_Subjects.rs, Été!", |word| {
            all.push(word.to_owned())
        });
        assert_eq!(
            all,
            [
                "add", "to", "sx9", "harness", "src", "nats", "subjects", "rs", "été"
            ]
        );
    }
}
