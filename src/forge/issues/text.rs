//! Texts of issues in their stored form.

use super::{Criterion, check_key, key_order};
use crate::error::{Error, Result};

/// Maximum length of a title, in characters.
const LONGEST_TITLE: usize = 500;
/// Maximum length of a description and of a comment, in characters. Linear refuses more.
const LONGEST_TEXT: usize = 250_000;
/// Maximum length of any other text, in characters.
const LONGEST: usize = 4_000;

/// Returns a title.
///
/// # Errors
/// `Usage`, as of every function here.
pub(super) fn title(text: &str) -> Result<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() || text.chars().count() > LONGEST_TITLE || text.chars().any(char::is_control)
    {
        return Err(Error::usage(format!(
            "a title is one line of 1 to {LONGEST_TITLE} characters"
        )));
    }
    Ok(nfc(&text))
}

/// Returns a long text; `None` if it is empty.
pub(super) fn body(name: &str, text: Option<&str>) -> Result<Option<String>> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if text.chars().count() > LONGEST_TEXT
        || text
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
    {
        let message =
            format!("{name} has at most {LONGEST_TEXT} characters, and no control characters");
        return Err(Error::usage(message));
    }
    Ok(Some(nfc(text)))
}

/// Returns a text of one line; `None` if it is empty.
pub(super) fn some(name: &str, text: Option<&str>) -> Result<Option<String>> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if text.chars().count() > LONGEST || text.chars().any(char::is_control) {
        let message = format!("{name} is one line of at most {LONGEST} characters");
        return Err(Error::usage(message));
    }
    Ok(Some(nfc(text)))
}

fn nfc(text: &str) -> String {
    unicode_normalization::UnicodeNormalization::nfc(text).collect()
}

pub(super) fn criterion(text: &str) -> Result<Criterion> {
    some("a criterion", Some(text))?
        .map(Criterion::Text)
        .ok_or_else(|| Error::usage("a criterion says something"))
}

pub(super) fn priority(number: u8) -> Result<u8> {
    if number <= 4 {
        return Ok(number);
    }
    Err(Error::usage(format!(
        "{number} is no priority: 1 is urgent, 2 high, 3 normal, 4 low, 0 none"
    )))
}

pub(super) fn key(text: &str) -> Result<String> {
    let text = text.trim();
    check_key(text).map_err(Error::usage)?;
    Ok(text.to_owned())
}

/// Returns keys in their order, each once.
pub(super) fn keys(all: &[String]) -> Result<Vec<String>> {
    let mut keys: Vec<String> = all
        .iter()
        .filter(|text| !text.trim().is_empty())
        .map(|text| key(text))
        .collect::<Result<_>>()?;
    keys.sort_by(|a, b| key_order(a).cmp(&key_order(b)));
    keys.dedup();
    Ok(keys)
}

/// Returns labels in their order, each once.
pub(super) fn labels(all: &[String]) -> Result<Vec<String>> {
    let mut labels = Vec::new();
    for label in all {
        labels.extend(some("a label", Some(label))?);
    }
    labels.sort();
    labels.dedup();
    Ok(labels)
}
