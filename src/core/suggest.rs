//! Suggestions for mistyped words: "did you mean ...?".

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
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(unknown, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 3)
        .min()
        .map(|(_, word)| word)
}

/// Returns `; did you mean "..."?` for the nearest known word, or nothing.
pub fn did_you_mean<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(unknown, known).map_or_else(String::new, |word| format!("; did you mean \"{word}\"?"))
}
