//! Fingerprints: they tell whether two texts are the same but for blanks and letter case.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Returns the fingerprint of a text: the SHA-256, in hex, of its lines without blanks around them,
/// with one blank for any row of blanks, without empty lines, case folded.
#[must_use]
pub fn fingerprint(text: &str) -> String {
    let lines: Vec<String> = text
        .replace("\r\n", "\n")
        .split('\n')
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect();
    let folded = fold(&lines.join("\n"));
    Sha256::digest(folded.as_bytes())
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Memory takes everything.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// Folds the case of a text (full folding of Unicode).
fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            plain if plain.is_ascii() => folded.push(plain.to_ascii_lowercase()),
            '\u{131}' => folded.push(character),
            '\u{1e9e}' => folded.push_str("ss"),
            // Cherokee folds to its large letters: the small ones came later.
            '\u{13a0}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => {
                folded.extend(character.to_uppercase())
            }
            other => folded.extend(other.to_uppercase().flat_map(char::to_lowercase)),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_large_letters_do_not_matter() {
        let one = fingerprint("Use  the\tStraße.\r\n\r\n  Then stop. \n");
        assert_eq!(one, fingerprint("use the STRASSE.\nthen stop."));
        assert_ne!(one, fingerprint("use the strasse. then stop."));
        // sha256 of the bytes "use the strasse.\nthen stop."
        assert_eq!(
            one,
            "2afb8b57d1e8e2ec648fd1be0653ca56ac4bdbcd45987fa75fc2595a444763a9"
        );
        assert_eq!(
            fingerprint(" \n"),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn letters_fold_as_unicode_says() {
        for (text, folded) in [
            ("ÉÇ", "éç"),
            ("ΣΑΣ σας", "σασ σασ"),
            ("ß ẞ ﬁ", "ss ss fi"),
            ("İ ı I", "i\u{307} ı i"),
            ("ꭰ Ꭰ", "Ꭰ Ꭰ"),
            ("ŉ", "ʼn"),
            ("记忆", "记忆"),
        ] {
            assert_eq!(fold(text), folded, "{text}");
        }
    }
}
