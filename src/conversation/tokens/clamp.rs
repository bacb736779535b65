//! Shortens texts to a number of tokens.

use std::borrow::Cow;

use super::Counter;

/// Mark at the end of a shortened text, if there is room.
pub const MARK: &str = " …[older context compacted]";

/// Mark at the start of a text whose start was cut off, if there is room.
pub const HEAD_MARK: &str = "[older context compacted]… ";

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
        let short = if kept.is_empty() {
            String::new()
        } else {
            format!("{kept}{mark}")
        };
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
    let from = text.ceil_char_boundary(text.len() - LOOK_BACK.min(text.len() / 4));
    let tail = &text[from..];
    let sentence = tail
        .char_indices()
        .rev()
        .find_map(|(at, character)| sentence_end(tail, at, character));
    from + sentence
        .or_else(|| tail.rfind(char::is_whitespace))
        .unwrap_or(tail.len())
}

/// Returns the end of a sentence whose last character is at a place, if it is one.
fn sentence_end(text: &str, at: usize, character: char) -> Option<usize> {
    let end = at + character.len_utf8();
    let ends = match character {
        '\n' | '。' | '！' | '？' => true,
        '.' | '!' | '?' => text[end..].starts_with(char::is_whitespace),
        _ => false,
    };
    ends.then_some(end)
}

pub(super) fn tail(counter: Counter, text: &str, max: u64) -> Cow<'_, str> {
    if counter.count(text) <= max {
        return Cow::Borrowed(text);
    }
    let mark = counter.count(HEAD_MARK);
    // In less room the mark would be most of the text.
    let (mark, mut room) = if max >= mark * 2 {
        (HEAD_MARK, max - mark)
    } else {
        ("", max)
    };
    loop {
        let kept = &text[begin(text, fitting_from(counter, text, room))..];
        let short = if kept.is_empty() {
            String::new()
        } else {
            format!("{mark}{kept}")
        };
        let over = counter.count(&short).saturating_sub(max);
        if over == 0 {
            return Cow::Owned(short);
        }
        // A tokenizer may need more tokens for both together.
        room = room.saturating_sub(over);
    }
}

/// Returns the start of an end of the text that has at most `max` tokens, close to the longest
/// possible one.
fn fitting_from(counter: Counter, text: &str, max: u64) -> usize {
    // Binary search: tokenizers can't count from the end.
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let middle = text.floor_char_boundary(low + (high - low) / 2);
        if counter.count(&text[middle..]) <= max {
            high = middle;
        } else {
            low = text.ceil_char_boundary(middle + 1);
        }
    }
    high
}

/// Returns where an end of the text begins from a place on: after a sentence, else after a word,
/// else there.
fn begin(text: &str, from: usize) -> usize {
    let rest = &text[from..];
    let whole = |at: &usize| !rest[*at..].trim_start().is_empty();
    let sentence = rest
        .char_indices()
        .find_map(|(at, character)| sentence_end(rest, at, character).filter(whole));
    let word = || rest.find(char::is_whitespace).filter(whole);
    let at = from + sentence.or_else(word).unwrap_or(0);
    at + text[at..].len() - text[at..].trim_start().len()
}
