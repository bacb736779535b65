//! The forms in which a secret may be written, and how they are found.
//!
//! A part of a secret is a key, a password, a passphrase or a line of a private key. It is searched
//! for unescaped; as JSON or a URL writes it, in any spelling of the two; in hex; and in base64 at
//! any offset, so also inside of the base64 of something longer (`user:password` of HTTP Basic).

use helmdeck_core::Secret;
use memchr::{memchr_iter, memmem};

/// Minimum length of a redacted part: redacting every `a` would destroy more than it protects.
const MIN_BYTES: usize = 6;

/// One form of a secret to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Needle {
    bytes: Vec<u8>,
    /// Number of base64 digits before it that are determined partly by the secret.
    before: usize,
    /// Number of such digits after it.
    after: usize,
    /// Whether no escaping changes it.
    plain: bool,
}

/// Returns all forms to search for, the longest first, so that no form is cut by a shorter one.
pub(super) fn needles(secrets: &[Secret]) -> Vec<Needle> {
    let mut needles = Vec::new();
    for secret in secrets {
        for part in parts(secret) {
            add(&mut needles, part.as_bytes());
        }
    }
    needles.sort_by(|a, b| {
        b.bytes
            .len()
            .cmp(&a.bytes.len())
            .then_with(|| a.bytes.cmp(&b.bytes))
    });
    needles.dedup();
    needles
}

/// Returns the secret, also trimmed, and its lines, except the frame lines of a private key.
fn parts(secret: &Secret) -> impl Iterator<Item = &str> {
    let text = secret.expose();
    let lines = if text.contains('\n') {
        text.lines()
    } else {
        "".lines()
    };
    [text, text.trim()]
        .into_iter()
        .chain(
            lines
                .map(str::trim)
                .filter(|line| !line.starts_with("-----")),
        )
        .chain(secret.passphrase())
        .filter(|part| part.len() >= MIN_BYTES)
}

fn add(needles: &mut Vec<Needle>, part: &[u8]) {
    let mut push = |bytes: Vec<u8>, before, after| {
        let plain = bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte));
        needles.push(Needle {
            bytes,
            before,
            after,
            plain,
        });
    };
    push(part.to_vec(), 0, 0);
    for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
        push(
            part.iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .map(|half| digits[usize::from(half)])
                .collect(),
            0,
            0,
        );
    }
    for offset in 0..3 {
        let (core, before, after) = base64_core(part, offset);
        let url_safe: Vec<u8> = core
            .iter()
            .map(|digit| match digit {
                b'+' => b'-',
                b'/' => b'_',
                other => *other,
            })
            .collect();
        push(url_safe, before, after);
        push(core, before, after);
    }
}

/// Returns the base64 digits (RFC 4648) that `part` alone determines.
///
/// `offset` is its distance from a multiple of three bytes. Also returns how many digits on each
/// side it determines together with its neighbours.
fn base64_core(part: &[u8], offset: usize) -> (Vec<u8>, usize, usize) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (start, end) = (offset * 8, (offset + part.len()) * 8);
    let bit = |at: usize| part[(at - start) / 8] >> (7 - at % 8) & 1;
    let (first, last) = (start.div_ceil(6), end / 6);
    let digit = |index: usize| {
        DIGITS[usize::from((index * 6..index * 6 + 6).fold(0, |digit, at| digit << 1 | bit(at)))]
    };
    let core = (first..last).map(digit).collect();
    (core, usize::from(start % 6 != 0), usize::from(end % 6 != 0))
}

impl Needle {
    /// Returns its length where it is not escaped, with the shared digits on both sides.
    pub(super) fn len(&self) -> usize {
        self.before + self.bytes.len() + self.after
    }

    /// Returns its first position at or after `from`, with the shared digits on both sides.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let rest = bytes.get(from..)?;
        let found = if self.plain || memchr::memchr3(b'%', b'\\', b'+', rest).is_none() {
            memmem::find(rest, &self.bytes).map(|at| (from + at, from + at + self.bytes.len()))
        } else {
            self.find_written(bytes, from)
        };
        let (mut start, mut end) = found?;
        let digit = |at: usize| {
            bytes
                .get(at)
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))
        };
        if self.before > 0 && start > from && digit(start - 1) {
            start -= 1;
        }
        if self.after > 0 && digit(end) {
            end += 1;
        }
        Some((start, end))
    }

    /// Finds the needle in any spelling of JSON and URLs.
    fn find_written(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let first = *self.bytes.first()?;
        let literal = memchr_iter(first, &bytes[from..]).map(|at| from + at);
        let escaped = memchr::memchr3_iter(b'%', b'\\', b'+', &bytes[from..]).map(|at| from + at);
        // The first match of either kind wins, so each kind is tried only up to the match of the
        // other.
        let mut best: Option<(usize, usize)> = None;
        for candidates in [
            &mut literal.into_iter() as &mut dyn Iterator<Item = usize>,
            &mut escaped.into_iter(),
        ] {
            for at in candidates {
                if best.is_some_and(|(start, _)| at >= start) {
                    break;
                }
                if let Some(end) = self.matches(bytes, at) {
                    best = Some((at, end));
                    break;
                }
            }
        }
        best
    }

    /// Returns the end of the needle if it is written at this place.
    fn matches(&self, bytes: &[u8], at: usize) -> Option<usize> {
        // Places still to be tried: (in the text, in the needle). Bounded, because a text of
        // backslashes alone has many readings.
        let mut open = vec![(at, 0)];
        let mut steps = 4 * self.bytes.len() + 16;
        while let Some((at, done)) = open.pop() {
            let wanted = &self.bytes[done..];
            let Some(first) = wanted.first() else {
                return Some(at);
            };
            steps = steps.checked_sub(1)?;
            // The last one pushed is tried first: the unescaped byte.
            if let Some((text, length, next)) = read_escape(bytes, at)
                && wanted.starts_with(&text[..length])
            {
                open.push((next, done + length));
            }
            let raw = bytes.get(at);
            if *first == b'\\' {
                // JSON writes two backslashes for one, and JSON inside of JSON four.
                let run = bytes.get(at..).map_or(0, slashes);
                open.extend(
                    [4, 2]
                        .into_iter()
                        .filter(|count| *count <= run)
                        .map(|count| (at + count, done + 1)),
                );
            }
            if raw == Some(first) || (raw == Some(&b'+') && *first == b' ') {
                open.push((at + 1, done + 1));
            }
        }
        None
    }
}

/// Reads an escape of a URL (`%2F`) or of JSON (`\n`, `\u00f6`).
///
/// JSON inside of JSON has more backslashes. Returns the UTF-8 of the character, its length, and
/// where the escape ends. An escaped backslash is not read here.
fn read_escape(bytes: &[u8], at: usize) -> Option<([u8; 4], usize, usize)> {
    let one = |byte: u8, next: usize| Some(([byte, 0, 0, 0], 1, next));
    match bytes.get(at)? {
        b'%' => one(u8::try_from(hex(bytes.get(at + 1..at + 3)?)?).ok()?, at + 3),
        b'\\' => {
            let next = at + slashes(&bytes[at..]);
            match bytes.get(next)? {
                b'"' => one(b'"', next + 1),
                b'/' => one(b'/', next + 1),
                b'n' => one(b'\n', next + 1),
                b'r' => one(b'\r', next + 1),
                b't' => one(b'\t', next + 1),
                b'u' => unicode(bytes, next + 1),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Reads the code after `\u`: four hex digits, or a surrogate pair.
fn unicode(bytes: &[u8], at: usize) -> Option<([u8; 4], usize, usize)> {
    let high = hex(bytes.get(at..at + 4)?)?;
    let (code, next) = match high {
        0xD800..0xDC00 => {
            let rest = at + 4 + slashes(&bytes[at + 4..]);
            let low = hex(bytes
                .get(rest + 1..rest + 5)
                .filter(|_| bytes[rest] == b'u')?)?;
            (
                0x10000 + ((high - 0xD800) << 10) + low.checked_sub(0xDC00)?,
                rest + 5,
            )
        }
        code => (code, at + 4),
    };
    let mut text = [0; 4];
    let length = char::from_u32(code)?.encode_utf8(&mut text).len();
    Some((text, length, next))
}

/// Counts the backslashes that a text begins with.
fn slashes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'\\').count()
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| {
        Some(number << 4 | char::from(*digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_core_depends_on_the_part_alone() {
        // "xuser:password" and "user:password": RFC 4648 of each, computed by coreutils.
        for (text, offset) in [
            ("eHVzZXI6cGFzc3dvcmQ=", 6),
            ("dXNlcjpwYXNzd29yZA==", 5),
            ("cGFzc3dvcmQ=", 0),
        ] {
            let (core, before, after) = base64_core(b"password", offset % 3);
            let at = text.find(std::str::from_utf8(&core).unwrap()).unwrap();
            assert_eq!(at * 6 / 8, offset, "{text}");
            assert!(before <= at && after < text.len() - at - core.len());
        }
    }

    #[test]
    fn escapes_are_read() {
        let read = |text: &str| {
            let (bytes, length, next) = read_escape(text.as_bytes(), 0)?;
            Some((String::from_utf8_lossy(&bytes[..length]).into_owned(), next))
        };
        for (text, meaning, next) in [
            ("%2F", "/", 3),
            ("%2fx", "/", 3),
            ("\\\"", "\"", 2),
            ("\\\\\\\"", "\"", 4),
            ("\\/", "/", 2),
            ("\\u00f6", "ö", 6),
            ("\\u00F6", "ö", 6),
            ("\\ud83d\\ude00", "😀", 12),
        ] {
            assert_eq!(read(text), Some((meaning.to_owned(), next)), "{text}");
        }
        for text in [
            "%",
            "%2",
            "%zz",
            "\\",
            "\\u12",
            "\\ud83d",
            "\\ud83d\\u0041",
            "x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
