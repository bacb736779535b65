//! One note: its front matter, read leniently, and its text.
//!
//! Notes are written by people, by Obsidian and by several programs, so nothing here is an error. A
//! line that is not understood is ignored, and a block that does not end is text.

use std::collections::BTreeMap;

use helmdeck_core::text::visible;

/// The line at the start and end of the front matter.
const FENCE: &str = "---";
/// Statuses of notes that hold no longer.
const GONE: [&str; 3] = ["superseded", "expired", "deleted"];
/// Fields that only such notes have.
const GONE_BY: [&str; 3] = ["superseded_by", "superseded_at", "deleted_at"];
/// Values that say that a field has none.
const NONE: [&str; 4] = ["null", "~", "none", "false"];

/// Priority of a note among those that are always loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before the others.
    High,
    /// In the order of its name.
    #[default]
    Normal,
    /// After the others.
    Low,
}

/// A note.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    fields: BTreeMap<String, Vec<String>>,
    text: String,
    /// Whether bytes that are no UTF-8 were replaced.
    pub lossy: bool,
    /// Whether it was read to its end.
    pub whole: bool,
    /// Number of bytes read.
    pub bytes: usize,
}

impl Note {
    /// Parses a note: all of it, or its start.
    #[must_use]
    pub fn parse(bytes: &[u8], whole: bool) -> Self {
        let text = String::from_utf8_lossy(bytes);
        // A character may have been cut in two at the end of what was read.
        let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        let lossy = valid < bytes.len() && (whole || bytes.len() - valid > 3);
        let text = text
            .strip_prefix('\u{feff}')
            .unwrap_or(&text)
            .replace("\r\n", "\n");
        let (fields, text) = match split(&text) {
            Some((front, rest)) => (fields(front), rest.to_owned()),
            None => (BTreeMap::new(), text),
        };
        let text = visible(text.trim_start_matches('\n').trim_end()).into_owned();
        Self {
            fields,
            text,
            lossy,
            whole,
            bytes: bytes.len(),
        }
    }

    /// Returns the text, as it may be [shown](visible).
    ///
    /// It is without the front matter and without blanks at its end.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns a field; the first item of a list.
    ///
    /// The name is in lower case, with `_` between words, however the note spells it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .get(name)?
            .first()
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns what it asserts or records: its `type`, else its `kind`.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        self.field("type").or_else(|| self.field("kind"))
    }

    /// Returns its tags.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        self.fields.get("tags").map_or(&[], Vec::as_slice)
    }

    /// Returns whether the note is valid.
    ///
    /// It is neither superseded, nor expired, nor deleted, and names no replacement.
    #[must_use]
    pub fn holds(&self) -> bool {
        let is = |value: &str, words: &[&str]| {
            words
                .iter()
                .any(|word| value.trim().eq_ignore_ascii_case(word))
        };
        let gone = self.field("status").is_some_and(|status| is(status, &GONE));
        !gone
            && !GONE_BY
                .iter()
                .any(|name| self.field(name).is_some_and(|value| !is(value, &NONE)))
    }

    /// Returns where it belongs among those that are always loaded.
    #[must_use]
    pub fn priority(&self) -> Priority {
        match self.field("priority") {
            Some(value) if value.eq_ignore_ascii_case("high") => Priority::High,
            Some(value) if value.eq_ignore_ascii_case("low") => Priority::Low,
            _ => Priority::Normal,
        }
    }
}

/// Returns whether a note begins with front matter whose end is not among these bytes.
pub(super) fn is_cut(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes.starts_with(FENCE.as_bytes())
        && split(&String::from_utf8_lossy(bytes).replace("\r\n", "\n")).is_none()
}

/// Splits a note into its front matter and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix(FENCE)?;
    let end = rest.find('\n')?;
    if !rest[..end].trim().is_empty() {
        return None;
    }
    let rest = &rest[end + 1..];
    let mut offset = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == FENCE {
            return Some((&rest[..offset], &rest[offset + line.len()..]));
        }
        offset += line.len();
    }
    None
}

/// Reads `name: value`, `name: [a, b]` and `name:` with `- a` below it.
///
/// Of a repeated name the last value counts.
fn fields(front: &str) -> BTreeMap<String, Vec<String>> {
    let mut fields = BTreeMap::new();
    let mut open: Option<String> = None;
    for line in front.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if let Some(item) = trimmed.strip_prefix("- ") {
            if let Some(items) = open.as_ref().and_then(|name| fields.get_mut(name)) {
                let items: &mut Vec<String> = items;
                items.push(scalar(item));
            }
            continue;
        }
        open = None;
        // What is indented belongs to a map, and none is read here.
        let Some((name, value)) = trimmed
            .split_once(':')
            .filter(|_| !line.starts_with([' ', '\t']))
        else {
            continue;
        };
        let name = name
            .trim()
            .trim_matches(['"', '\''])
            .to_ascii_lowercase()
            .replace(['-', ' '], "_");
        let value = value.trim();
        let list = value
            .strip_prefix('[')
            .and_then(|value| value.split_once(']'))
            .map(|(items, _)| items);
        let values = match list {
            Some(items) => items
                .split(',')
                .map(scalar)
                .filter(|item| !item.is_empty())
                .collect(),
            None if value.is_empty() => {
                open = Some(name.clone());
                Vec::new()
            }
            None => vec![scalar(value)],
        };
        fields.insert(name, values);
    }
    fields
}

/// Returns a value without its quotes, or without the comment behind it.
fn scalar(value: &str) -> String {
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some((inner, _)) = value
            .strip_prefix(quote)
            .and_then(|rest| rest.split_once(quote))
        {
            return inner.to_owned();
        }
    }
    if value.starts_with('#') {
        return String::new();
    }
    value
        .split(" #")
        .next()
        .unwrap_or(value)
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn note(text: &str) -> Note {
        Note::parse(text.as_bytes(), true)
    }

    #[test]
    fn front_matter_of_every_author_is_read() {
        let first = note(
            "---\nkind: convention\nstatus: active\ncreated: 2026-06-01\ntags: [rust, \"a b\"]\ngroup: work/x\nslug: s\nalways_load: true\n---\n\nThe text.\n",
        );
        assert_eq!(
            (first.kind(), first.text()),
            (Some("convention"), "The text.")
        );
        assert_eq!(first.tags(), ["rust", "a b"]);
        let obsidian = note(
            "\u{feff}---\r\ntype: 'fix' # a comment\r\nkind: brief\r\ntags:\r\n  - one\r\n  - \"two\"\r\nother:\r\n  deep: x\r\nempty:\r\n---\r\n\r\n\r\nA\r\nB  \r\n\r\n",
        );
        assert_eq!((obsidian.kind(), obsidian.text()), (Some("fix"), "A\nB"));
        assert_eq!(obsidian.tags(), ["one", "two"]);
        assert_eq!(
            (
                obsidian.field("deep"),
                obsidian.field("empty"),
                obsidian.field("absent")
            ),
            (None, None, None)
        );
        let odd = note(
            "---\nno colon\n: no name\n- an item of nothing\nstatus: [expired]\nstatus: active\n---\ntext",
        );
        assert!(odd.holds() && odd.text() == "text", "{odd:?}");
    }

    #[test]
    fn what_does_not_look_like_front_matter_is_text() {
        for text in [
            "",
            "plain",
            "---",
            "---\nnever: ends\n",
            "--- a\nb: c\n---\nd",
            "a\n---\nb: c\n---",
            "----\nx\n---\n",
        ] {
            assert_eq!(note(text).text(), text.trim_end(), "{text:?}");
        }
        assert_eq!(note("---\n---\n").text(), "");
        assert_eq!(note("---  \na: b\n---  \nc").text(), "c");
    }

    #[test]
    fn what_was_superseded_holds_no_longer() {
        for (status, holds) in [
            ("active", true),
            ("unfiled", true),
            ("inbox", true),
            ("", true),
            ("superseded", false),
            ("Expired", false),
            ("\"deleted\"", false),
            ("superseded # by b", false),
        ] {
            assert_eq!(
                note(&format!("---\nstatus: {status}\n---\nx")).holds(),
                holds,
                "{status}"
            );
        }
        for gone in [
            "Status: superseded",
            "STATUS: Deleted",
            "status: archived\nsuperseded_by: x",
            "superseded_at: 2026-01-01",
            "superseded_by:\n  - \"[[x]]\"",
            "Superseded-By: [x]",
            "deleted_at: 2026-01-01",
        ] {
            assert!(!note(&format!("---\n{gone}\n---\nx")).holds(), "{gone}");
        }
        for held in [
            "superseded_by:",
            "superseded_by: null",
            "superseded_by: []",
            "deleted_at: ~",
            "supersedes: x",
            "Status: Active",
        ] {
            assert!(note(&format!("---\n{held}\n---\nx")).holds(), "{held}");
        }
    }

    #[test]
    fn priorities_come_in_their_order() {
        let priority = |value: &str| note(&format!("---\npriority: {value}\n---\nx")).priority();
        assert!(priority("high") < priority("whatever") && priority("none") < priority("low"));
        assert_eq!(note("x").priority(), Priority::Normal);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_told() {
        let bad = Note::parse(b"---\nstatus: superseded\n---\na\xff\x1b[31m\0b\n", true);
        assert!(bad.lossy && !bad.holds());
        assert_eq!(bad.text(), "a\u{fffd}\u{fffd}[31m\u{fffd}b");
        assert_eq!(
            note("a\u{202e}b\u{2028}c\u{e0041}d\u{feff}e").text(),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e"
        );
        assert!(
            !Note::parse("größe".as_bytes().split_at(3).0, false).lossy,
            "it was only cut there"
        );
        assert!(Note::parse(b"a\xc3", true).lossy);
        assert!(Note::parse(b"\xffabcdef", false).lossy);
    }

    proptest! {
        #[test]
        fn anything_is_a_note(bytes in proptest::collection::vec(any::<u8>(), 0..300), front in any::<bool>()) {
            let mut all = if front { b"---\n".to_vec() } else { Vec::new() };
            all.extend(bytes);
            let note = Note::parse(&all, true);
            prop_assert!(!note.text().contains(|c: char| helmdeck_core::text::is_hidden(c) && c != '\n' && c != '\t'));
        }
    }
}
