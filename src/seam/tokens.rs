//! Estimate of the tokens of a text.
//!
//! It counts four characters a token, but one for each character of a script that writes words with
//! few.

/// The first character that counts as a whole token.
///
/// Hangul, kana, ideographs and signs begin here.
const WIDE: char = '\u{1100}';

/// Returns how many tokens a text is, about.
#[must_use]
pub fn tokens(text: &str) -> usize {
    quarters(text).div_ceil(4)
}

/// Returns how many quarters of a token a text is: these add up.
pub(crate) fn quarters(text: &str) -> usize {
    text.chars()
        .map(|character| if is_wide(character) { 4 } else { 1 })
        .sum()
}

const fn is_wide(character: char) -> bool {
    // Dashes, quotes and other signs between the scripts are as cheap as letters.
    character >= WIDE && !matches!(character, '\u{1e00}'..='\u{1fff}' | '\u{2000}'..='\u{206f}')
}

/// Returns how many bytes a text with this many quarters of a token may have.
pub(crate) const fn bytes_of(quarters: usize) -> usize {
    // No character below the wide ones has more than three bytes, nor a wide one more than four.
    quarters.saturating_mul(3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn four_letters_are_a_token_and_so_is_one_ideograph() {
        assert_eq!(tokens(""), 0);
        assert_eq!(tokens("abcd"), 1);
        assert_eq!(tokens("abcde"), 2);
        assert_eq!(tokens("größ"), 1);
        assert_eq!(tokens("記憶です"), 4);
        assert_eq!(tokens("— …"), 1);
    }

    proptest! {
        #[test]
        fn no_text_has_more_bytes_than_its_tokens_allow(text in any::<String>()) {
            prop_assert!(text.len() <= bytes_of(quarters(&text)));
        }
    }
}
