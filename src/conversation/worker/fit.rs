//! Fits texts into a request or a summary.

use std::borrow::Cow;

use crate::tokens::{Counter, MARK};

/// Returns the length to request after `long` summaries that were too long.
///
/// It is a quarter less each time, and at least half.
pub(super) fn asked(most: u64, long: u32) -> u64 {
    match long {
        0 => most,
        1 => most - most / 4,
        _ => most - most / 2,
    }
    .max(1)
}

/// Shortens a summary to `most` tokens by leaving out its middle.
///
/// Goals are at its start, the latest events at its end.
pub(super) fn shortened(counter: Counter, text: &str, most: u64) -> Cow<'_, str> {
    let text = text.trim();
    if counter.count(text) <= most {
        return Cow::Borrowed(text);
    }
    // The start ends with the mark.
    let head = counter.clamp(text, most / 2);
    if !head.ends_with(MARK) {
        return counter.clamp(text, most);
    }
    let mut room = most.saturating_sub(counter.count(&head));
    while room > 0 {
        let whole = format!("{head}\n{}", tail(counter, text, room));
        let over = counter.count(&whole).saturating_sub(most);
        if over == 0 {
            return Cow::Owned(whole);
        }
        // A tokenizer may need more tokens for both together.
        room = room.saturating_sub(over);
    }
    head
}

/// Returns the end of a text, from the start of a line or word, in at most `most` tokens.
fn tail(counter: Counter, text: &str, most: u64) -> &str {
    // Binary search: tokenizers can't count from the end.
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let mut middle = low + (high - low) / 2;
        while !text.is_char_boundary(middle) {
            middle += 1;
        }
        if counter.count(&text[middle..]) <= most {
            if middle == high {
                break;
            }
            high = middle;
        } else {
            low = middle + text[middle..].chars().next().map_or(1, char::len_utf8);
        }
    }
    let end = &text[high..];
    let begin = end.find('\n').filter(|at| *at < end.len() / 4).or_else(|| end.find(char::is_whitespace));
    begin.map_or(end, |at| &end[at..]).trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_summary_loses_only_its_middle() {
        let counter = Counter::Chars;
        let lines: Vec<_> = (0..400).map(|line| format!("- fact number {line} is known")).collect();
        let text = lines.join("\n");
        for most in [40, 100, 999] {
            let short = shortened(counter, &text, most);
            let tokens = counter.count(&short);
            assert!(tokens <= most && tokens > most * 2 / 3, "{tokens} of {most}");
            assert!(short.starts_with("- fact number 0") && short.ends_with("number 399 is known"), "{short}");
            assert!(short.contains(MARK));
        }
        assert_eq!(shortened(counter, " short\n", 100), "short");
    }

    #[test]
    fn whatever_the_text_and_the_room_it_fits() {
        let counter = Counter::Chars;
        for text in ["日本語の文章です。".repeat(50), "x".repeat(3_000), "a b\n".repeat(500), "é ".repeat(700)]
        {
            for most in 0..120 {
                let short = shortened(counter, &text, most);
                assert!(counter.count(&short) <= most, "{most}: {short}");
            }
        }
    }

    #[test]
    fn too_long_summary_is_asked_shorter() {
        assert_eq!([0, 1, 2, 9].map(|long| asked(100, long)), [100, 75, 50, 50]);
        assert_eq!([0, 1, 2].map(|long| asked(1, long)), [1, 1, 1]);
    }
}
