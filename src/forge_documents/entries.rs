//! Entries of the long-term memory, each in a file whose name says what it is about.

use helmdeck_forge_files::files::StoredEntry;
use helmdeck_forge_files::json::Members;
use serde::Serialize;
use unicode_normalization::UnicodeNormalization as _;

/// Length of a name, in characters.
const LONGEST: usize = 48;

/// Returns the words of a text as a part of a file name, and whether they are all in it.
pub(crate) fn slug(text: &str) -> (String, bool) {
    let (mut slug, mut is_whole) = (String::new(), true);
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let plain: String = word
            .nfkd()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        is_whole &= plain.len() >= word.chars().count();
        if slug.is_empty() {
            slug = plain.chars().take(LONGEST).collect();
            is_whole &= slug.len() == plain.len();
        } else if slug.len() + plain.len() < LONGEST {
            slug.push_str(if plain.is_empty() { "" } else { "-" });
            slug.push_str(&plain);
        } else {
            return (slug, false);
        }
    }
    (slug, is_whole)
}

/// Makes an entry: its key, the name of its file and whether that has a mark, and its value.
pub(crate) fn entry<T: Serialize>(
    key: String,
    (slug, is_marked): (String, bool),
    value: &T,
) -> StoredEntry {
    let members =
        serde_json::to_vec(value).and_then(|bytes| serde_json::from_slice::<Members>(&bytes));
    // A value of ours is always an object. The version of its file comes first.
    let mut value = members.unwrap_or_default();
    value.0.shift_remove("schema_version");
    StoredEntry {
        key,
        slug,
        is_marked,
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_an_entry_is_about() {
        for (text, name, is_whole) in [
            ("Halve a number", "halve-a-number", true),
            ("Été: naïve?", "ete-naive", true),
            ("日本 x", "x", false),
            ("", "", true),
        ] {
            assert_eq!(slug(text), (name.to_owned(), is_whole));
        }
        let (long, is_whole) = slug(&"word ".repeat(30));
        assert!(long.len() <= LONGEST && long.ends_with("-word") && !is_whole);
        assert_eq!(slug(&"x".repeat(60)), ("x".repeat(LONGEST), false));
    }
}
