//! Finds what looks like a credential, so that none is written into the memory of a project.
//!
//! Two ways: texts with a shape nobody else has (a key of a known service, a private key, a password in a URL), and texts without order
//! behind a word like `password` or `token`. Hashes, UUIDs, the names of artifacts and encoded images pass. A finding never holds what
//! was found.

mod pieces;
mod rules;

use std::sync::{LazyLock, OnceLock};

use regex::Regex;
use serde::Serialize;

use crate::error::{Category, Error};
pub(crate) use pieces::Pieces;
use rules::RULES;

/// Something that looks like a credential. Its value stands nowhere in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which rule found it.
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
    /// One of these stands in every match, in lower case: the pattern is tried only there.
    needles: &'static [&'static str],
    /// Its first group, or else all of it, is the value.
    pattern: &'static str,
    /// Says of a value whether it is one after all.
    real: fn(&str) -> bool,
}

/// The pattern of each rule, made when it is first needed.
static PATTERNS: LazyLock<Vec<OnceLock<Option<Regex>>>> = LazyLock::new(|| vec![OnceLock::new(); RULES.len()]);

/// Returns every rule: its id, and what it finds.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.id, rule.what))
}

/// Finds what looks like a credential, in the order of its places.
#[must_use]
pub fn scan(text: &str) -> Vec<Finding> {
    let lower = text.to_ascii_lowercase();
    let likely: Vec<_> = RULES
        .iter()
        .zip(PATTERNS.iter())
        .filter(|(rule, _)| rule.needles.iter().any(|needle| lower.contains(needle)))
        .filter_map(|(rule, pattern)| Some((rule, pattern.get_or_init(|| Regex::new(rule.pattern).ok()).as_ref()?)))
        .collect();
    let mut findings = Vec::new();
    if likely.is_empty() {
        return findings;
    }
    for (at, line) in text.lines().enumerate() {
        let lower = line.to_ascii_lowercase();
        let mut plain = None;
        for (rule, pattern) in &likely {
            if !rule.needles.iter().any(|needle| lower.contains(needle)) {
                continue;
            }
            let plain: &str = plain.get_or_insert_with(|| unescape(line));
            for found in pattern.captures_iter(plain) {
                let Some(value) = found.get(1).or_else(|| found.get(0)) else { continue };
                if (rule.real)(value.as_str()) {
                    let column = plain[..value.start()].chars().count() + 1;
                    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                    findings.push(Finding { rule: rule.id, line: number(at + 1), column: number(column) });
                }
            }
        }
    }
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings
}

/// Blanks the escapes of JSON, so that what stands behind one begins a word. Every place stays where it is.
fn unescape(line: &str) -> String {
    ["\\n", "\\r", "\\t"].iter().fold(line.replace("\\\"", "\"\""), |line, escape| line.replace(escape, "  "))
}

/// Returns a text that somebody reads, unless it would show them what looks like a credential.
pub(crate) fn shown(text: String) -> String {
    match scan(&text).first() {
        None => text,
        Some(Finding { rule, .. }) => {
            format!("[what is wrong is not shown, for it looks as if a credential stood in it (rule {rule})]")
        }
    }
}

/// The error of a write that was refused.
pub(crate) fn refuse(path: &str, first: &Finding, count: usize) -> Error {
    let Finding { rule, line, column } = first;
    let what = RULES.iter().find(|known| known.id == *rule).map_or("a secret", |known| known.what);
    let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    let message = format!("{path}:{line}:{column}: this looks like {what} (rule {rule}{more}): nothing was written");
    Error::new(Category::Secret, "E_SECRET", message).hint(format!(
        "take it out, and replace it at its service if others could have seen it; if it is no secret, allow the rule: --allow-secret {rule}"
    ))
}

#[cfg(test)]
pub(crate) mod tests;
