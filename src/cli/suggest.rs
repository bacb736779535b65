//! "Did you mean ...?": the nearest known word for a slip of the finger.

/// Returns `; did you mean "..."?` for the nearest known word, or nothing if none is near.
pub(crate) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    known
        .map(|word| (strsim::damerau_levenshtein(unknown, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min()
        .map_or_else(String::new, |(_, word)| format!("; did you mean \"{word}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_suggested() {
        assert_eq!(nearest("lisen", ["listen", "level"].into_iter()), "; did you mean \"listen\"?");
        assert_eq!(nearest("zzz", ["listen"].into_iter()), "");
    }
}
