//! Leak scanner: finds text that looks like a credential.
//!
//! The cache does not store an answer with such text, and no such text is written into `.forge/`.
//!
//! There are two kinds of rules. Some find shapes that only credentials have: the token of a known service, a private
//! key, a password in a URL. Others find random text behind a word such as `password` or `token`. Hashes, UUIDs,
//! artifact names and encoded images pass. A finding never holds the text in which it was found.
//!
//! One pass searches for the anchors of all rules. The pattern of a rule is tried only at its anchors, so time is
//! linear in the size of the text.

mod rules;
#[cfg(any(test, feature = "testing"))]
pub mod samples;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use regex::bytes::Regex;
use serde::Serialize;

use rules::RULES;

/// Finding: the location of text that looks like a credential, without the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule that found it.
    pub rule: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

/// A shape of credentials.
struct Rule {
    id: &'static str,
    /// What it finds, after "this looks like".
    what: &'static str,
    /// Every match begins with one of these anchors, in any case.
    ///
    /// They are in lower case here, and none is a prefix of another.
    anchors: &'static [&'static str],
    /// Checks the text before an anchor. The second argument is the anchor.
    ///
    /// Returns how many bytes before the anchor the credential begins.
    before: fn(&[u8], &[u8]) -> Option<usize>,
    /// Pattern of the text from the anchor on. Its first group, or else all of it, is the value.
    pattern: &'static str,
    /// Says of a value whether it is a credential, given the whole match and the value.
    real: fn(&str, &str) -> bool,
}

/// All anchors, and the rules of each.
struct Anchors {
    regex: Regex,
    rules: HashMap<&'static [u8], Vec<usize>>,
    longest: usize,
}

static ANCHORS: LazyLock<Option<Anchors>> = LazyLock::new(|| {
    let mut rules: HashMap<&'static [u8], Vec<usize>> = HashMap::new();
    for (index, rule) in RULES.iter().enumerate() {
        for anchor in rule.anchors {
            rules.entry(anchor.as_bytes()).or_default().push(index);
        }
    }
    let mut words: Vec<String> =
        RULES.iter().flat_map(|rule| rule.anchors).map(|anchor| regex::escape(anchor)).collect();
    words.sort_unstable();
    words.dedup();
    let longest = rules.keys().map(|anchor| anchor.len()).max().unwrap_or(0);
    Some(Anchors { regex: Regex::new(&format!("(?i-u:{})", words.join("|"))).ok()?, rules, longest })
});

/// The pattern of each rule, compiled when it is first needed.
static PATTERNS: LazyLock<Vec<OnceLock<Option<Regex>>>> = LazyLock::new(|| vec![OnceLock::new(); RULES.len()]);

fn pattern(index: usize) -> Option<&'static Regex> {
    let make = || Regex::new(&format!("^(?-u:{})", RULES[index].pattern)).ok();
    PATTERNS.get(index)?.get_or_init(make).as_ref()
}

/// Returns every rule: its id, and what it finds.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.id, rule.what))
}

/// Returns what a rule finds, to be read after "this looks like".
#[must_use]
pub fn what(rule: &str) -> &'static str {
    RULES.iter().find(|known| known.id == rule).map_or("a secret", |known| known.what)
}

/// Returns whether a text holds something that looks like a credential. Stops at the first one.
#[must_use]
pub fn has_leak(text: &[u8]) -> bool {
    let mut found = false;
    search(text, |_, _| {
        found = true;
        false
    });
    found
}

/// Finds everything that looks like a credential, in text order.
#[must_use]
pub fn scan(text: &str) -> Vec<Finding> {
    let mut places = Vec::new();
    search(text.as_bytes(), |rule, start| {
        places.push((start, rule));
        true
    });
    places.sort_by_key(|(start, _)| *start);
    let (mut line, mut line_start, mut done) = (1_u32, 0, 0);
    places
        .into_iter()
        .map(|(start, rule)| {
            for (at, _) in text.as_bytes()[done..start].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                line = line.saturating_add(1);
                line_start = done + at + 1;
            }
            done = start;
            let before = String::from_utf8_lossy(&text.as_bytes()[line_start..start]).chars().count();
            Finding { rule, line, column: u32::try_from(before + 1).unwrap_or(u32::MAX) }
        })
        .collect()
}

/// Calls back with every match (rule and start of the value) until the callback returns `false`.
fn search(text: &[u8], mut on_found: impl FnMut(&'static str, usize) -> bool) {
    let Some(anchors) = ANCHORS.as_ref() else { return };
    // Skip a rule inside its own match, so that repeated anchors cost no more than one.
    let mut done = vec![0_usize; RULES.len()];
    let mut lower = Vec::with_capacity(anchors.longest);
    for anchor in anchors.regex.find_iter(text) {
        lower.clear();
        lower.extend(anchor.as_bytes().iter().map(u8::to_ascii_lowercase));
        for index in anchors.rules.get(lower.as_slice()).into_iter().flatten() {
            if anchor.start() < done[*index] {
                continue;
            }
            let Some((value, end, real)) = try_rule(*index, text, anchor.start(), &lower) else { continue };
            done[*index] = end;
            if real && !on_found(RULES[*index].id, value.start) {
                return;
            }
        }
    }
}

/// Tries a rule at one of its anchors.
///
/// Returns the range of the value, the end of the match, and whether it is a credential.
fn try_rule(index: usize, text: &[u8], at: usize, anchor: &[u8]) -> Option<(Range<usize>, usize, bool)> {
    let rule = &RULES[index];
    let back = (rule.before)(&text[..at], anchor)?;
    let here = &text[at..];
    let captures = pattern(index)?.captures(here)?;
    let whole = captures.get(0)?;
    let value = captures.get(1).unwrap_or(whole);
    let real = (rule.real)(&String::from_utf8_lossy(whole.as_bytes()), &String::from_utf8_lossy(value.as_bytes()));
    Some((at + value.start() - back..at + value.end(), at + whole.end(), real))
}

#[cfg(test)]
mod tests;
