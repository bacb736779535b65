//! Suggestions for mistyped words: "did you mean ...?".

use crate::text::escaped;

/// Limit of unknown words that a message names.
pub(crate) const NAMED: usize = 5;
/// Limit of a word that is compared, in characters: the work grows with its square.
const COMPARED: usize = 64;

/// Returns the known word that is nearest to a mistyped one, if one is near enough to be meant.
///
/// # Examples
/// ```
/// use helmdeck_core::suggest::nearest;
///
/// assert_eq!(nearest("lisen", ["listen", "level"]), Some("listen"));
/// assert_eq!(nearest("zzz", ["listen"]), None);
/// ```
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = unknown.chars().count();
    if length > COMPARED {
        return None;
    }
    known
        .into_iter()
        // A word whose length differs more is farther away than is near enough.
        .filter(|word| {
            word.len() <= 4 * COMPARED
                && length.abs_diff(word.chars().count()) <= 1 + word.len() / 3
        })
        .map(|word| (strsim::damerau_levenshtein(unknown, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 3)
        .min()
        .map(|(_, word)| word)
}

/// Returns `; did you mean "..."?` for the nearest known word, or nothing.
pub fn did_you_mean<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(unknown, known).map_or_else(String::new, |word| format!("; did you mean \"{word}\"?"))
}

/// Returns the units of work of [`unknown`]: two comparisons of characters cost one.
pub(crate) fn units(words: &[String], known: &[&str]) -> u64 {
    let compared = |word: &&str| word.len() <= 4 * COMPARED;
    let known: u64 = known
        .iter()
        .copied()
        .filter(compared)
        .map(|word| 8 + word.len() as u64)
        .sum();
    words
        .iter()
        .map(String::as_str)
        .filter(compared)
        .map(|word| (1 + word.len() as u64) * known / 2)
        .sum()
}

/// Says that words are not known, each with the nearest one that is. The words may come from
/// anybody.
///
/// `words` are the first of `count` words.
pub(crate) fn unknown(words: &[String], count: usize, known: &[&str]) -> String {
    let tell = |word: &String| {
        format!(
            "\"{}\" is not known{}",
            escaped(word, 80),
            did_you_mean(word, known.iter().copied())
        )
    };
    let mut told: Vec<String> = words.iter().take(NAMED).map(tell).collect();
    if count > told.len() {
        told.push(format!("and {} more", count - told.len()));
    }
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_unknown_words_are_counted() {
        let words: Vec<String> = (0..9).map(|number| format!("zzzzzz\n{number}")).collect();
        let told = unknown(&words, 9, &["path"]);
        assert!(
            told.starts_with("\"zzzzzz\\n0\" is not known, ") && told.ends_with(", and 4 more"),
            "{told}"
        );
        assert_eq!(
            unknown(&["pth".to_owned()], 1, &["path"]),
            "\"pth\" is not known; did you mean \"path\"?"
        );
    }

    #[test]
    fn long_words_are_not_compared() {
        let (long, known) = ("x".repeat(800_000), "x".repeat(799_999));
        assert_eq!(nearest(&long, [known.as_str()]), None);
        assert_eq!(nearest("x", [known.as_str(), "xy"]), Some("xy"));
    }
}
