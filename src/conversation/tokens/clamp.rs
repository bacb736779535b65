//! Shortens texts to a number of tokens.

use std::borrow::Cow;

use super::Counter;

/// What a text that was shortened ends with, where there is room for it.
pub const MARK: &str = " …[older context compacted]";

/// How many bytes at the end of what fits are given up for a better place to cut.
const LOOK_BACK: usize = 400;

pub(super) fn clamp(counter: Counter, text: &str, max: u64) -> Cow<'_, str> {
    if counter.prefix(text, max) == text.len() {
        return Cow::Borrowed(text);
    }
    let mark = counter.count(MARK);
    // With less room than twice the mark, the mark would be most of what is left.
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
        // A tokenizer may take more for the two together than for each.
        room = room.saturating_sub(over);
    }
}

/// Returns where to cut a text that goes on behind its end: after a sentence, else after a word, else at the end.
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
