//! The estimate by characters.

/// Returns the tokens of a text.
pub(super) fn count(text: &str) -> u64 {
    // Most texts are ASCII, and a context counts its texts each time.
    let sum = if text.is_ascii() {
        text.len() as u64
    } else {
        text.chars().map(quarters).sum()
    };
    if sum == 0 { 0 } else { sum / 4 + 1 }
}

/// Returns the length of the longest prefix of at most `max` tokens.
pub(super) fn prefix(text: &str, max: u64) -> usize {
    let most = max.saturating_mul(4);
    if text.is_ascii() {
        return text
            .len()
            .min(usize::try_from(most.saturating_sub(1)).unwrap_or(usize::MAX));
    }
    let mut sum = 0;
    text.char_indices()
        .find(|(_, character)| {
            sum += quarters(*character);
            sum >= most
        })
        .map_or(text.len(), |(at, _)| at)
}

/// Returns the quarter tokens of a character.
const fn quarters(character: char) -> u64 {
    match character {
        '\0'..='\x7f' => 1,
        // Hangul, CJK with its punctuation, kana, the wide forms, and all planes but the first.
        '\u{1100}'..='\u{11ff}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff00}'..='\u{ffef}'
        | '\u{10000}'.. => 4,
        _ => 2,
    }
}
