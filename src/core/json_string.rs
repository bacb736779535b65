//! Writes text as a JSON string: the text of a result of a tool is a whole output, so it is looked
//! at in words, not bytes.

/// A byte in each place of a word.
const fn everywhere(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Returns a word whose lowest set bit is in the place of the first byte that must be escaped; 0 if
/// there is none.
///
/// That is a control character, a quote or a backslash (RFC 8259, section 7). Bits above the lowest
/// mean nothing.
const fn escapes(word: u64) -> u64 {
    // Of each, the high bit of a place is set if its byte is zero or below 0x20 (Hacker's Delight,
    // section 6-1). A borrow may set those above it too.
    let control = word.wrapping_sub(everywhere(0x20)) & !word;
    let (quote, backslash) = (word ^ everywhere(b'"'), word ^ everywhere(b'\\'));
    let quote = quote.wrapping_sub(everywhere(1)) & !quote;
    let backslash = backslash.wrapping_sub(everywhere(1)) & !backslash;
    (control | quote | backslash) & everywhere(0x80)
}

/// Writes a text as a JSON string, with its quotes, as `serde_json` does.
///
/// # Examples
/// ```
/// let mut out = Vec::new();
/// helmdeck_core::write_json_string("say \"hi\"\n", &mut out);
/// assert_eq!(out, br#""say \"hi\"\n""#);
/// ```
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    out.reserve(rest.len() + rest.len() / 8 + 2);
    out.push(b'"');
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let found = escapes(u64::from_le_bytes(*word));
        out.extend_from_slice(word);
        if found == 0 {
            rest = after;
            continue;
        }
        let place = (found.trailing_zeros() / 8) as usize;
        out.truncate(out.len() - 8 + place);
        escape(word[place], out);
        rest = &rest[place + 1..];
    }
    for byte in rest {
        if *byte < 0x20 || matches!(byte, b'"' | b'\\') {
            escape(*byte, out)
        } else {
            out.push(*byte)
        }
    }
    out.push(b'"');
}

/// Writes a byte that must be escaped.
fn escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        8 => b'b',
        9 => b't',
        10 => b'n',
        12 => b'f',
        13 => b'r',
        _ => {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            return out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                digit(byte >> 4),
                digit(byte & 15),
            ]);
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_as_serde_json(text: &str) {
        let mut out = b"before ".to_vec();
        write_json_string(text, &mut out);
        assert_eq!(
            out,
            format!("before {}", serde_json::to_string(text).unwrap()).into_bytes(),
            "{text:?}"
        );
    }

    #[test]
    fn every_character_is_escaped_as_serde_json_does_in_any_place() {
        let plain = "abcdefghijklmnopqrstu";
        let wide = [
            '\u{80}',
            '\u{a2}',
            '\u{dc}',
            '\u{7ff}',
            '\u{2028}',
            '\u{ffff}',
            '\u{1f600}',
        ];
        for character in ('\0'..='\u{ff}').chain(wide) {
            for place in 0..=plain.len() {
                let (before, after) = plain.split_at(place);
                assert_as_serde_json(&format!("{before}{character}{after}"));
                assert_as_serde_json(&format!("{before}{character}{character}\"{after}"));
            }
        }
        for length in 0..20 {
            for character in ["\"", "\\", "\n", "\u{1}", "x", "\u{1f}", " ", "!", "#"] {
                assert_as_serde_json(&character.repeat(length));
            }
        }
    }
}
