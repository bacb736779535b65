//! Text helpers: made safe to show, on one line, shortened, escaped for a message, quoted for a
//! shell.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

/// Returns whether a character is invisible, ends a line, controls a terminal, or reorders others.
///
/// Line feed and tab count too. Joiners (U+200C, U+200D) and the first sixteen variation selectors
/// do not: many scripts and emoji use them.
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

/// Returns a text of several lines that is safe to show.
///
/// Hidden characters become `U+FFFD`, except line feeds and tabs.
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
        if is_hidden(character) {
            line.extend(character.escape_default())
        } else {
            line.push(character)
        }
    }
    line
}

/// Returns a number of things for people.
///
/// # Examples
/// ```
/// use helmdeck_core::text::count;
///
/// assert_eq!(count(1, "commit"), "1 commit");
/// assert_eq!(count(2, "entry"), "2 entries");
/// assert_eq!(count(0, "day"), "0 days");
/// ```
#[must_use]
pub fn count(number: impl TryInto<u64>, what: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    match what
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']))
    {
        _ if number == 1 => format!("1 {what}"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {what}s"),
    }
}

/// Joins the words of a text with single spaces.
///
/// # Examples
/// ```
/// assert_eq!(helmdeck_core::text::collapse_whitespace(" a\n\t b "), "a b");
/// ```
#[must_use]
pub fn collapse_whitespace(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Cuts a text after `max` characters and marks the cut with `…`.
///
/// # Examples
/// ```
/// assert_eq!(helmdeck_core::text::truncate("größer", 5), "größe…");
/// assert_eq!(helmdeck_core::text::truncate("größe", 5), "größe");
/// ```
#[must_use]
pub fn truncate(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Escapes the first `max` characters of an unknown name, to be put between quotes in an error.
///
/// # Examples
/// ```
/// assert_eq!(helmdeck_core::text::escaped("a\"\n", 2), "a\\\"");
/// ```
#[must_use]
pub fn escaped(text: &str, max: usize) -> String {
    text.chars()
        .take(max)
        .flat_map(char::escape_debug)
        .collect()
}

/// Replaces each control character by a space.
#[must_use]
pub fn without_controls(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Bounded words of another service for an error message: no control characters, at most `max`
/// bytes.
#[must_use]
pub fn excerpt(text: &str, max: usize) -> String {
    let line = without_controls(text);
    line[..line.floor_char_boundary(max)].trim().to_owned()
}

/// Quotes a word for a shell (POSIX.1, Shell Command Language 2.2.2), if it needs that.
///
/// # Examples
/// ```
/// assert_eq!(helmdeck_core::text::shell_quoted("a/b.txt"), "a/b.txt");
/// assert_eq!(helmdeck_core::text::shell_quoted("it's"), r"'it'\''s'");
/// ```
#[must_use]
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the line of a byte of a text, from 1.
#[must_use]
pub fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(byte)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Returns whether two hex digits follow each `%` of a text (RFC 3986, section 2.1).
#[must_use]
pub fn is_percent_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        rest.as_bytes()
            .get(..2)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Lays rows out in columns, two spaces apart; the last column is not padded.
#[must_use]
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| {
            rows.iter()
                .filter_map(|row| row.get(at))
                .map(|cell| cell.width())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.width() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
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
            assert!(
                !one_line(&format!("a{hidden}b")).contains(hidden),
                "{hidden:?}"
            );
        }
        for seen in [
            "plain",
            "größe",
            "記憶",
            "می\u{200c}خواهم",
            "👩\u{200d}💻",
            "❤\u{fe0f}",
            "—…",
            "\u{a0}",
            "\u{3000}",
        ] {
            assert!(!seen.contains(is_hidden), "{seen}");
        }
    }

    #[test]
    fn a_text_keeps_its_lines_and_one_line_keeps_what_was_written() {
        assert_eq!(
            visible("a\tb\r\nc\rd\u{1b}[2J\u{202e}é\n"),
            "a\tb\nc\u{fffd}d\u{fffd}[2J\u{fffd}é\n"
        );
        assert_eq!(
            one_line("a\tb\nc\u{1b}\u{2028}\u{e0041}é"),
            "a\\tb\\nc\\u{1b}\\u{2028}\\u{e0041}é"
        );
        assert!(matches!(visible("a\nb"), Cow::Borrowed(_)));
    }

    #[test]
    fn excerpts_are_one_bounded_line() {
        assert_eq!(excerpt("\u{1b}a\nb ", 100), "a b");
        assert_eq!(excerpt("aé", 2), "a");
    }

    #[test]
    fn percent_signs_need_two_digits() {
        assert!(
            ["", "a", "%41", "a%c3%A9b"]
                .into_iter()
                .all(is_percent_encoded)
        );
        assert!(
            !["%", "a%4", "%+1", "%4g", "%25%", "%%41"]
                .into_iter()
                .any(is_percent_encoded)
        );
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

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "long".to_owned(), "x".to_owned()],
            vec!["bcd".to_owned(), "e".to_owned()],
        ];
        assert_eq!(columns(&rows), "a    long  x\nbcd  e\n");
        let wide = [
            vec!["漢字".to_owned(), "x".to_owned()],
            vec!["abc".to_owned(), "y".to_owned()],
        ];
        assert_eq!(columns(&wide), "漢字  x\nabc   y\n");
    }
}
