//! Views of a text in which a credential that is spelled differently stands as it is.
//!
//! One view undoes the escapes of JSON and of source text, at any depth. Another undoes percent
//! encoding and leaves out characters without width. A run of Base64 that holds text is decoded
//! once.

use std::borrow::Cow;
use std::ops::Range;

/// Limit of backslashes that are one escape: JSON within JSON, three levels deep, has eight.
const MAX_BACKSLASHES: usize = 16;
/// Shortest run of Base64 that is decoded.
const MIN_RUN: usize = 24;
/// Number of its first characters that must hold text. Images and archives do not.
const FIRST: usize = 16;

/// A text, and where its parts stood in the text that it was made of.
pub(super) struct View<'a> {
    pub(super) text: Cow<'a, [u8]>,
    /// Offset here and offset there of each part that follows a replacement.
    shifts: Vec<(usize, usize)>,
}

impl<'a> View<'a> {
    /// Undoes escapes: `\n`, `\"`, `\/`, `\u005f`, `\x5f`, each with any number of backslashes.
    pub(super) fn without_escapes(text: &'a [u8]) -> Self {
        rewrite(text, |byte| byte == b'\\', escape).unwrap_or(Self {
            text: Cow::Borrowed(text),
            shifts: Vec::new(),
        })
    }

    /// Undoes percent encoding, and leaves out characters without width; `None` if the text has
    /// neither.
    pub(super) fn decoded(text: &'a [u8]) -> Option<Self> {
        rewrite(
            text,
            |byte| matches!(byte, b'%' | 0xC2 | 0xCD | 0xE1 | 0xE2 | 0xEF),
            encoded,
        )
    }

    /// Returns where a part stood.
    pub(super) fn origin(&self, part: &Range<usize>) -> Range<usize> {
        let origin = |at: usize| match self.shifts.partition_point(|(here, _)| *here <= at) {
            0 => at,
            next => at - self.shifts[next - 1].0 + self.shifts[next - 1].1,
        };
        origin(part.start)..origin(part.end).max(origin(part.start))
    }
}

/// Replaces parts of a text; `None` if nothing is to be replaced.
///
/// `part` returns for a text that begins with a mark the length of the part and its replacement.
fn rewrite<'a>(
    text: &'a [u8],
    is_mark: impl Fn(u8) -> bool,
    part: impl Fn(&[u8]) -> Option<(usize, Option<char>)>,
) -> Option<View<'a>> {
    let (mut made, mut shifts) = (Vec::new(), Vec::new());
    let (mut copied, mut from) = (0, 0);
    while let Some(found) = text[from..].iter().position(|byte| is_mark(*byte)) {
        let at = from + found;
        let Some((length, replacement)) = part(&text[at..]) else {
            from = at + 1;
            continue;
        };
        if shifts.is_empty() {
            made.reserve(text.len());
        }
        made.extend_from_slice(&text[copied..at]);
        made.extend_from_slice(
            replacement
                .map(|c| c.encode_utf8(&mut [0; 4]).to_owned())
                .unwrap_or_default()
                .as_bytes(),
        );
        (copied, from) = (at + length, at + length);
        shifts.push((made.len(), copied));
    }
    if shifts.is_empty() {
        return None;
    }
    made.extend_from_slice(&text[copied..]);
    Some(View {
        text: Cow::Owned(made),
        shifts,
    })
}

/// Reads an escape: its length, and what it stands for.
fn escape(text: &[u8]) -> Option<(usize, Option<char>)> {
    let slashes = text
        .iter()
        .take(MAX_BACKSLASHES)
        .take_while(|byte| **byte == b'\\')
        .count();
    let rest = &text[slashes..];
    let (length, stands_for) = match rest.first()? {
        b'n' | b'r' | b't' | b'b' | b'f' => (1, '\n'),
        quote @ (b'"' | b'\'' | b'`' | b'/') => (1, char::from(*quote)),
        b'u' => (5, char::from_u32(hex(rest.get(1..5)?)?)?),
        b'x' => (3, char::from_u32(hex(rest.get(1..3)?)?)?),
        _ => return None,
    };
    Some((slashes + length, Some(stands_for)))
}

/// Reads a percent-encoded character or one without width.
fn encoded(text: &[u8]) -> Option<(usize, Option<char>)> {
    if text.first() == Some(&b'%') {
        let code = hex(text.get(1..3)?)?;
        // Other bytes are parts of a character that no credential has.
        return Some((3, char::from_u32(code).filter(char::is_ascii).or(Some(' '))));
    }
    let length = match text.first()? {
        0xC2 | 0xCD => 2,
        _ => 3,
    };
    let c = std::str::from_utf8(text.get(..length)?)
        .ok()?
        .chars()
        .next()?;
    let is_without_width = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}');
    is_without_width.then_some((length, None))
}

fn hex(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok()?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Decodes the runs of Base64 that hold text. A run may go on over line breaks, and begin at any
/// line.
pub(super) fn base64(text: &[u8]) -> impl Iterator<Item = (Range<usize>, Vec<u8>)> + '_ {
    let (mut at, mut end) = (0, 0);
    std::iter::from_fn(move || {
        loop {
            let run = if at + MIN_RUN <= end {
                at..end
            } else {
                next_run(text, at)?
            };
            end = run.end;
            let first = decode(&text[run.start..run.start + FIRST]);
            if first
                .iter()
                .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'))
            {
                at = run.end;
                let decoded = decode(&text[run.clone()]);
                return Some((run, decoded));
            }
            let line = text[run.clone()].iter().position(|byte| *byte == b'\n');
            at = line.map_or(run.end, |line| run.start + line + 1);
        }
    })
}

/// Finds the next run of at least [`MIN_RUN`] bytes. Most words are shorter, so it looks at every
/// so many bytes only.
fn next_run(text: &[u8], mut from: usize) -> Option<Range<usize>> {
    let is_part = |byte: &u8| digit(*byte).is_some() || matches!(byte, b'\r' | b'\n');
    loop {
        let window = text.get(from..from + MIN_RUN)?;
        match window.iter().rposition(|byte| !is_part(byte)) {
            Some(last) => from += last + 1,
            None if matches!(text[from], b'\r' | b'\n') => from += 1,
            None => {
                let length = text[from..].iter().take_while(|byte| is_part(byte)).count();
                return Some(from..from + length);
            }
        }
    }
}

/// Decodes Base64 of either alphabet; other bytes are skipped.
fn decode(run: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(run.len() / 4 * 3 + 3);
    let (mut bits, mut count) = (0_u32, 0);
    for value in run.iter().filter_map(|byte| digit(*byte)) {
        bits = (bits << 6 | u32::from(value)) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count & 0xFF) as u8);
        }
    }
    decoded
}

const fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}
