//! Regular expressions of schemas: linear in the text, and interrupted when the check has to end.
//!
//! A pattern is a lazily built DFA that this file walks byte by byte, so that it can pay for each
//! step: a step to a state that is known is cheap, a new one costs as much as the pattern is large.
//! Look-around and back-references, which need backtracking, are refused.

use std::error::Error as _;
use std::fmt::Write as _;
use std::panic::{RefUnwindSafe, UnwindSafe};

use regex_automata::Input;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_automata::util::syntax;

use super::effort::{Effort, Unfinished, reading};
use crate::text;

/// Limit of a pattern, in bytes.
const MAX_BYTES: usize = 8 << 10;
/// Limit of the automaton of one pattern, in bytes.
const MAX_AUTOMATON: usize = 2 << 20;
/// Limit of what a walk remembers of an automaton, in bytes; when it is full, it begins anew.
const MAX_REMEMBERED: usize = 256 << 10;
/// Bytes of a text between two payments for steps that are known.
const CHUNK: usize = 4096;
/// States of an automaton that one unit pays for.
const STATES_PER_UNIT: usize = 1;

type MakeCache = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// A pattern.
pub(super) struct Pattern {
    source: String,
    automaton: DFA,
    /// Units for a step to a state that is not known yet.
    new_state: u64,
    caches: Pool<Cache, MakeCache>,
}

impl Pattern {
    /// Reads a pattern in the syntax of ECMA-262.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let refuse = |why: &str| {
            format!(
                "the pattern \"{}\" cannot be used: {why}",
                text::escaped(source, 80)
            )
        };
        if source.len() > MAX_BYTES {
            return Err(refuse(&format!("it is longer than {MAX_BYTES} bytes")));
        }
        let built = DFA::builder()
            .syntax(syntax::Config::new().utf8(false))
            .thompson(
                thompson::Config::new()
                    .utf8(false)
                    .which_captures(WhichCaptures::None)
                    .nfa_size_limit(Some(MAX_AUTOMATON)),
            )
            .configure(
                Config::new()
                    .cache_capacity(MAX_REMEMBERED)
                    .skip_cache_capacity_check(true),
            )
            .build(&rust_syntax(source).map_err(|why| refuse(&why))?);
        let automaton = built.map_err(|error| {
            let mut cause = error.to_string();
            let mut source = error.source();
            while let Some(inner) = source {
                cause = inner.to_string();
                source = inner.source();
            }
            // The reason is the last line, below a picture of the place.
            refuse(
                cause
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .trim_start_matches("error: "),
            )
        })?;
        let new_state = 16 + (automaton.get_nfa().states().len() / STATES_PER_UNIT) as u64;
        let made = automaton.clone();
        let caches = Pool::new(Box::new(move || made.create_cache()) as MakeCache);
        Ok(Self {
            source: source.to_owned(),
            automaton,
            new_state,
            caches,
        })
    }

    /// Returns the pattern as it was written.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Returns the size of its automaton, in bytes.
    pub(super) fn size(&self) -> usize {
        self.automaton.get_nfa().memory_usage()
    }

    /// Returns whether some part of a text matches.
    pub(super) fn is_match(&self, text: &str, effort: &mut Effort<'_>) -> Result<bool, Unfinished> {
        self.walk(text, &mut self.caches.get(), effort)
    }

    fn walk(
        &self,
        text: &str,
        cache: &mut Cache,
        effort: &mut Effort<'_>,
    ) -> Result<bool, Unfinished> {
        // A walk that begins anew whenever its memory is full never gives up.
        let given_up = |_| Unfinished::TooMuch;
        // A start that is not known yet costs as much as another state; that of a small automaton
        // is soon known.
        effort.spend(self.new_state / 8)?;
        let input = Input::new(text);
        let mut at = self
            .automaton
            .start_state_forward(cache, &input)
            .map_err(|_| Unfinished::TooMuch)?;
        if at.is_dead() {
            return Ok(false);
        }
        for chunk in text.as_bytes().chunks(CHUNK) {
            effort.spend(reading(chunk.len() * 4))?;
            for byte in chunk {
                let mut next = self.automaton.next_state_untagged(cache, at, *byte);
                if next.is_tagged() {
                    if next.is_unknown() {
                        effort.spend(self.new_state)?;
                        next = self
                            .automaton
                            .next_state(cache, at, *byte)
                            .map_err(given_up)?;
                    }
                    if next.is_match() {
                        return Ok(true);
                    }
                    if next.is_dead() {
                        return Ok(false);
                    }
                }
                at = next;
            }
        }
        effort.spend(self.new_state)?;
        let end = self.automaton.next_eoi_state(cache, at).map_err(given_up)?;
        Ok(end.is_match())
    }
}

/// White space of ECMA-262 (`\s`), as part of a class.
const SPACE: &str =
    r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
/// `.` of ECMA-262: everything but the ends of lines. (Of the flags, `s` does not change it: a
/// schema has none.)
const ANY: &str = r"[^\n\r\x{2028}\x{2029}]";

/// Rewrites a pattern of ECMA-262 in the syntax of the engine.
///
/// `\d`, `\w`, `\s` and `\b` are about ASCII and the white space of ECMA-262, and the operators
/// that only the engine knows inside a class stand for themselves.
fn rust_syntax(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut class: Option<Class> = None;
    let mut chars = pattern.chars().peekable();
    // A class that ignores case is read character by character, and there are a million.
    let wide = !pattern.is_ascii()
        || ["\\u", "\\x{", "\\p", "\\P"]
            .iter()
            .any(|wide| pattern.contains(wide));
    while let Some(c) = chars.next() {
        if c == '\\' {
            let escaped = chars.next().ok_or("it ends with a backslash")?;
            let set = match escaped.to_ascii_lowercase() {
                'd' => Some(DIGIT),
                'w' => Some(WORD),
                's' => Some(SPACE),
                _ => None,
            };
            if let Some(set) = set {
                let not = if escaped.is_ascii_uppercase() {
                    "^"
                } else {
                    ""
                };
                let _ = write!(out, "[{not}{set}]");
                if let Some(class) = &mut class {
                    class.set();
                }
                continue;
            }
            match (escaped, &class) {
                ('b', Some(_)) => out.push_str("\\x08"),
                ('b' | 'B', None) => {
                    let _ = write!(out, "(?-u:\\{escaped})");
                }
                ('c', _) => {
                    let letter = chars
                        .next()
                        .filter(char::is_ascii_alphabetic)
                        .ok_or("\\c is without a letter")?;
                    let _ = write!(out, "\\x{:02x}", u32::from(letter) % 32);
                }
                ('0', _) if !chars.peek().is_some_and(char::is_ascii_digit) => {
                    out.push_str("\\x00")
                }
                ('a' | 'A' | 'z' | 'Z' | '<' | '>', _) => {
                    return Err(format!("\\{escaped} is not known"));
                }
                _ => out.extend(['\\', escaped]),
            }
            if let Some(class) = &mut class {
                class.atom();
            }
            continue;
        }
        match &mut class {
            None if c == '[' => {
                let not = chars.next_if_eq(&'^').is_some();
                if chars.next_if_eq(&']').is_some() {
                    // `[]` matches nothing, `[^]` everything.
                    out.push_str(if not { "(?s:.)" } else { "[a&&b]" });
                    continue;
                }
                out.push_str(if not { "[^" } else { "[" });
                class = Some(Class::default());
            }
            None if c == '(' && chars.peek() == Some(&'?') => {
                out.push(c);
                out.extend(chars.next());
                while let Some(flag) = chars.next_if(|c| c.is_ascii_alphabetic() || *c == '-') {
                    if flag == 'i' && wide {
                        return Err("it ignores case, and has more than ASCII in it".to_owned());
                    }
                    out.push(flag);
                }
            }
            None if c == '.' => out.push_str(ANY),
            None => out.push(c),
            Some(_) if c == ']' => {
                out.push(c);
                class = None;
            }
            Some(known) if c == '-' => {
                if known.begins_range() && chars.peek().is_some_and(|next| *next != ']') {
                    out.push('-');
                    *known = Class::RangeEnd;
                } else {
                    out.push_str("\\-");
                    known.hyphen();
                }
            }
            Some(known) => {
                if matches!(c, '[' | '&' | '~' | '^') {
                    out.push('\\');
                }
                out.push(c);
                known.atom();
            }
        }
    }
    Ok(out)
}

/// What stands before a place in a class.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Nothing that a range could begin with.
    #[default]
    Start,
    /// A character.
    Atom,
    /// A set such as `\d`, which begins no range.
    Set,
    /// The hyphen of a range.
    RangeEnd,
}

impl Class {
    fn begins_range(self) -> bool {
        self == Self::Atom
    }

    fn atom(&mut self) {
        *self = if *self == Self::RangeEnd {
            Self::Start
        } else {
            Self::Atom
        };
    }

    fn set(&mut self) {
        *self = Self::Set;
    }

    fn hyphen(&mut self) {
        *self = if *self == Self::Start {
            Self::Atom
        } else {
            Self::Start
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern)
            .unwrap()
            .is_match(text, &mut Effort::light())
            .unwrap()
    }

    #[test]
    fn patterns_mean_what_ecma_says() {
        for (pattern, yes, no) in [
            ("^a+$", "aaa", "aab"),
            ("b", "abc", "ac"),
            ("", "", "\0impossible"),
            (r"^\d$", "1", "\u{661}"),
            (r"^\w$", "_", "é"),
            (r"^\s$", "\u{feff}", "x"),
            (r"^\S$", "x", "\u{a0}"),
            (r"\bé", "aé", "é"),
            (r"^a\b", "aé", "ab"),
            (r"^[a-z&&^b]+$", "b&^", "1"),
            (r"^[\w--z]$", "-", "+"),
            (r"^[a-z--b]$", "c", "{"),
            (r"^[[a]]$", "[]", "a"),
            (r"^[^a-]$", "b", "-"),
            (r"^[\b]$", "\u{8}", "b"),
            (r"^\cA[\ca]$", "\u{1}\u{1}", "A"),
            (r"^\0$", "\0", "0"),
            ("^.$", "\u{85}", "\r"),
            ("^.$", "x", "\u{2028}"),
            ("(?i)^[a-c]$", "B", "d"),
            ("^(?i:a)b(?<i>c)$", "Abc", "ABc"),
            (r"^[^]$", "\n", ""),
            (r"^\u0061\-\/\.$", "a-/.", "a-/x"),
            ("é{2}$", "xéé", "é"),
            (r"^\p{L}+$", "éß", "1"),
            ("^(a|b)*$", "abab", "abc"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes:?}");
            assert!(
                no.starts_with("\0imp") || !matches(pattern, no),
                "{pattern} {no:?}"
            );
        }
        assert!(!matches("[]", "a") && !matches(r"^a$", "a\n"));
    }

    #[test]
    fn what_cannot_be_linear_or_is_too_large_is_refused() {
        for (pattern, why) in [
            ("(?=a)b", "look-around"),
            (r"(a)\1", "backreferences"),
            ("[a", "unclosed"),
            (r"a\", "backslash"),
            (r"\A", "not known"),
            ("(?i)[!-\u{10ffff}]{0}", "ignores case"),
            (r"a(?s-i:\p{L})", "ignores case"),
            ("(a{1000}){1000}", "limit"),
            ("(\u{3b1}|[^b]{1,999}){200}", "limit"),
        ] {
            let told = Pattern::new(pattern).err().unwrap();
            assert!(
                told.contains(why) && told.contains("cannot be used"),
                "{pattern}: {told}"
            );
        }
        assert!(
            Pattern::new(&"a".repeat(MAX_BYTES + 1))
                .err()
                .unwrap()
                .contains("longer than")
        );
    }

    #[test]
    fn a_walk_ends_when_it_should() {
        let pattern = Pattern::new(r"(\w|[a-c]x|\d)[^b]{1,60}$|q").unwrap();
        let text: String = (0..800_000_u32)
            .map(|n| char::from(b'c' + (n.wrapping_mul(n) >> 7) as u8 % 20))
            .collect();
        let text = text.replace('q', "b");
        assert_eq!(
            pattern.is_match(&text, &mut Effort::light()),
            Err(Unfinished::TooMuch)
        );
        let looks = std::cell::Cell::new(0);
        let stop = || {
            looks.set(looks.get() + 1);
            looks.get() > 3
        };
        assert_eq!(
            pattern.is_match(&text, &mut Effort::full(&stop)),
            Err(Unfinished::Stopped)
        );
        let end = pattern.is_match(&text, &mut Effort::full(&|| false));
        assert!(matches!(end, Ok(_) | Err(Unfinished::TooMuch)));
        // Afterwards it is as good as new.
        assert!(matches(r"^x$", "x") && pattern.is_match("ab q", &mut Effort::light()).unwrap());
    }

    #[test]
    fn hostile_patterns_are_read_in_time_that_is_linear() {
        for piece in [
            r"\d", r"\s", r"\cA", r"[\s]", r"\b", r"[a-\-]", "[]", "[^]", "(?<a>", "-", "[--]",
        ] {
            let pattern = piece.repeat(MAX_BYTES / piece.len());
            let out = rust_syntax(&pattern).unwrap();
            assert!(out.len() < MAX_BYTES * 70, "{piece}: {}", out.len());
        }
    }
}
