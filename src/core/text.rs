//! Untrusted texts made safe to show: no hidden character, cursor movement or change of the reading order.

use std::borrow::Cow;

/// Says whether a character is unseen, ends a line, steers a terminal, or changes the order in which others are shown. Line feed and
/// tab are such characters, too.
///
/// Joiners (U+200C, U+200D) and the first sixteen variation selectors are not: many scripts and emoji are written with them.
#[must_use]
pub const fn is_hidden(character: char) -> bool {
    matches!(
        character,
        // Controls, ends of lines and paragraphs.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}'
        // Direction.
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
        // No width.
        | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'
        | '\u{2060}'..='\u{2065}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // Tags and the other variation selectors: unseen text.
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns a text of several lines as it may be shown: what is hidden in it is `U+FFFD`, but for line feeds and tabs.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let odd = |character: char| is_hidden(character) && !matches!(character, '\n' | '\t');
    if !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    // A carriage return before a line feed is part of the end of a line.
    Cow::Owned(text.replace("\r\n", "\n").replace(odd, "\u{fffd}"))
}

/// Returns a text on one line: what is hidden in it, line feeds and tabs too, as an escape.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_that_steers_or_hides_is_shown() {
        for hidden in [
            '\0',
            '\u{7}',
            '\t',
            '\n',
            '\r',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e007f}',
            '\u{e0100}',
        ] {
            assert!(is_hidden(hidden), "{hidden:?}");
            assert!(!one_line(&format!("a{hidden}b")).contains(hidden), "{hidden:?}");
        }
        for seen in
            ["plain", "größe", "記憶", "می\u{200c}خواهم", "👩\u{200d}💻", "❤\u{fe0f}", "—…", "\u{a0}", "\u{3000}"]
        {
            assert!(!seen.contains(is_hidden), "{seen}");
        }
    }

    #[test]
    fn a_text_keeps_its_lines_and_one_line_keeps_what_was_written() {
        assert_eq!(visible("a\tb\r\nc\rd\u{1b}[2J\u{202e}é\n"), "a\tb\nc\u{fffd}d\u{fffd}[2J\u{fffd}é\n");
        assert_eq!(one_line("a\tb\nc\u{1b}\u{2028}\u{e0041}é"), "a\\tb\\nc\\u{1b}\\u{2028}\\u{e0041}é");
        assert!(matches!(visible("a\nb"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn whatever_is_shown_hides_nothing(text in any::<String>()) {
            prop_assert!(!visible(&text).chars().any(|c| is_hidden(c) && c != '\n' && c != '\t'));
            prop_assert!(!one_line(&text).contains(is_hidden));
            let once = visible(&text);
            prop_assert_eq!(visible(&once), &*once);
        }
    }
}
