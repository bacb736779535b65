//! Escapes texts: as Go's `encoding/json`, or for prompts with every invisible character escaped.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Writes compact JSON, with additional characters escaped.
struct Escaping {
    is_unsafe: fn(char) -> bool,
    /// Whether values that are JSON text already are escaped too. Their unsafe characters are in
    /// strings only.
    raw: bool,
}

impl Formatter for Escaping {
    fn write_raw_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if self.raw {
            self.write_string_fragment(writer, fragment)
        } else {
            writer.write_all(fragment.as_bytes())
        }
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, character)) = next(rest, self.is_unsafe) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + character.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Finds the next character to escape.
fn next(text: &str, unsafe_character: fn(char) -> bool) -> Option<(usize, char)> {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        // Fast path for harmless ASCII.
        let at = from
            + bytes
                .get(from..)?
                .iter()
                .position(|byte| SUSPECT[usize::from(*byte)])?;
        let character = text.get(at..)?.chars().next()?;
        if unsafe_character(character) {
            return Some((at, character));
        }
        from = at + character.len_utf8();
    }
}

/// First bytes of characters that may need an escape.
const SUSPECT: [bool; 256] = {
    let mut table = [false; 256];
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0x7f] = true;
    let mut byte = 0xc2;
    while byte < 0x100 {
        table[byte] = true;
        byte += 1;
    }
    table
};

/// Characters that Go escapes so that its JSON is safe in HTML and JavaScript.
fn go(character: char) -> bool {
    matches!(character, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

/// Characters that are invisible, change the reading order, or look like angle brackets.
fn unseen(character: char) -> bool {
    matches!(
        character,
        '<' | '>' | '&'
        // Characters that Unicode normalises to an angle bracket.
        | '\u{ff1c}' | '\u{ff1e}' | '\u{fe64}' | '\u{fe65}'
        // Controls, line and paragraph ends.
        | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}'
        // Direction.
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
        // No width. Joiners (U+200C, U+200D) and variation selectors 1 to 16 are part of how many
        // scripts and emoji are written.
        | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        // Tags and the other variation selectors: invisible text.
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Writes a value as Go does.
pub(super) fn go_into<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    write_into(
        out,
        value,
        Escaping {
            is_unsafe: go,
            raw: false,
        },
    );
}

/// Writes a value with every invisible or tag-like character escaped.
pub(crate) fn escape_into<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    write_into(
        out,
        value,
        Escaping {
            is_unsafe: unseen,
            raw: true,
        },
    );
}

fn write_into<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T, escaping: Escaping) {
    // Writing to memory can't fail, and these values all have a JSON form.
    let _ = value.serialize(&mut Serializer::with_formatter(out, escaping));
}
