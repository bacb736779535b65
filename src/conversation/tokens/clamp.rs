//! Shortens texts to a number of tokens.

use std::borrow::Cow;

use super::Counter;

/// Mark at the end of a shortened text, if there is room.
pub const MARK: &str = " …[older context compacted]";

/// Maximum bytes to give up for a better place to cut.
const LOOK_BACK: usize = 400;

pub(super) fn clamp(counter: Counter, text: &str, max: u64) -> Cow<'_, str> {
    if counter.prefix(text, max) == text.len() {
        return Cow::Borrowed(text);
    }
    let mark = counter.count(MARK);
    // In less room the mark would be most of the text.
    let mark = if max >= mark * 2 { MARK } else { "" };
    let mut room = max;
    loop {
        let fitting = &text[..counter.prefix(text, room.saturating_sub(counter.count(mark)))];
        let kept = fitting[..cut(fitting)].trim_end();
        let short = if kept.is_empty() { String::new() } else { format!("{kept}{mark}") };
        let over = counter.count(&short).saturating_sub(max);
        if over == 0 {
            return Cow::Owned(short);
        }
        // A tokenizer may need more tokens for both together.
        room = room.saturating_sub(over);
    }
}

/// Returns where to cut: after a sentence, else after a word, else at the end.
fn cut(text: &str) -> usize {
    let mut from = text.len() - LOOK_BACK.min(text.len() / 4);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let tail = &text[from..];
    let sentence = tail.char_indices().rev().find_map(|(at, character)| {
        let end = at + character.len_utf8();
        let ends = match character {
            '\n' | '。' | '！' | '？' => true,
            '.' | '!' | '?' => tail[end..].starts_with(char::is_whitespace),
            _ => false,
        };
        ends.then_some(end)
    });
    from + sentence.or_else(|| tail.rfind(char::is_whitespace)).unwrap_or(tail.len())
}
