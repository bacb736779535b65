//! Leak scanner: finds text that looks like a credential.
//!
//! The cache does not store an answer with such text, no fact or note holds one unless its writer
//! says so, and no such text is written into `.forge/`.
//!
//! The rules are data: those of gitleaks (`gitleaks.rules`, written by `scripts/leak-rules.py`) and
//! ours (`helmdeck.rules`). Some find shapes that only credentials have: the token of a known
//! service, a private key, a password in a URL. Others find random text behind a word such as
//! `password` or `token`, or the name of a service. Hashes, UUIDs, artifact names and encoded
//! images pass. A finding never holds the text in which it was found.
//!
//! One pass searches for the keywords of all rules. The pattern of a rule is compiled when its
//! keyword is first found, and reads the text around its keyword only, so time is linear in the
//! size of the text, and a process that stores nothing spends neither time nor memory.

mod checks;
mod rules;
#[cfg(any(test, feature = "testing"))]
pub mod samples;
mod search;
mod view;

use std::collections::BTreeMap;

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

/// Returns the ids of all rules.
pub fn rules() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.id)
}

/// Returns the rule that finds something in a text; `None` if the text holds nothing that looks
/// like a credential.
///
/// Stops at the first finding.
#[must_use]
pub fn first_leak(text: &[u8]) -> Option<&'static str> {
    let mut found = None;
    search::search(text, &mut |rule, _| {
        found = Some(RULES[rule].id);
        false
    });
    found
}

/// Returns the name of a rule as the rules have it; `None` if there is no such rule.
#[must_use]
pub fn rule(name: &str) -> Option<&'static str> {
    RULES.iter().map(|rule| rule.id).find(|id| *id == name)
}

/// Returns whether a text holds something that looks like a credential. Stops at the first one.
#[must_use]
pub fn has_leak(text: &[u8]) -> bool {
    first_leak(text).is_some()
}

/// Finds everything that looks like a credential, in text order.
///
/// What several rules find is named once, by the one that comes first in the files of rules.
#[must_use]
pub fn scan(text: &str) -> Vec<Finding> {
    let mut places = Vec::new();
    search::search(text.as_bytes(), &mut |rule, range| {
        places.push((rule, range));
        true
    });
    places.sort_by_key(|(rule, range)| (*rule, range.start));
    // By the start: the end and the rule. None overlaps another.
    let mut kept: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (rule, range) in places {
        if kept
            .range(..range.end)
            .next_back()
            .is_none_or(|(_, (end, _))| *end <= range.start)
        {
            kept.insert(range.start, (range.end, rule));
        }
    }
    let (mut line, mut line_start, mut done) = (1_u32, 0, 0);
    kept.into_iter()
        .map(|(start, (_, rule))| {
            for (at, _) in text.as_bytes()[done..start]
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'\n')
            {
                line = line.saturating_add(1);
                line_start = done + at + 1;
            }
            done = start;
            let before = String::from_utf8_lossy(&text.as_bytes()[line_start..start])
                .chars()
                .count();
            Finding {
                rule: RULES[rule].id,
                line,
                column: u32::try_from(before + 1).unwrap_or(u32::MAX),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
