//! Quotes text of a server or a program in an error.
//!
//! The quotation is bounded, redacted, on one line, and marked as theirs.

use helmdeck_core::text::{collapse_whitespace, one_line};
use helmdeck_core::{Secret, leaks};

/// Limit of a quotation, in bytes.
const MAX_BYTES: usize = 1 << 10;
/// Replacement for a text that must not be repeated.
const WITH_CREDENTIAL: &str = "(not repeated: it looks as if it held a credential)";

/// Which part of a long text is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEnd {
    /// The beginning, as of an HTTP body.
    Head,
    /// The end, as of the output of a program before it failed.
    Tail,
}

/// Returns the text in quotes, to be put after "it says"; `None` if nothing is left of it.
///
/// `secrets` are those that the call was given; they are redacted before the text is cut, so that
/// no half of one stays. A text that contains anything else that looks like a credential is not
/// quoted.
pub fn foreign(text: &[u8], secrets: &[Secret], part: TextEnd) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let text = crate::text(&text, secrets);
    if leaks::has_leak(text.as_bytes()) {
        return Some(WITH_CREDENTIAL.to_owned());
    }
    let line = collapse_whitespace(&text);
    if line.is_empty() {
        return None;
    }
    let (cut, shown) = match (line.len() > MAX_BYTES, part) {
        (false, _) => (false, line.as_str()),
        (true, TextEnd::Head) => (true, &line[..line.floor_char_boundary(MAX_BYTES)]),
        (true, TextEnd::Tail) => (
            true,
            &line[line.ceil_char_boundary(line.len() - MAX_BYTES)..],
        ),
    };
    let shown = one_line(shown);
    Some(match (cut, part) {
        (false, _) => format!("\"{shown}\""),
        (true, TextEnd::Head) => format!("\"{shown}...\""),
        (true, TextEnd::Tail) => format!("\"...{shown}\""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str, part: TextEnd) -> Option<String> {
        foreign(
            text.as_bytes(),
            &[Secret::new("hunter2 hunter2".into())],
            part,
        )
    }

    #[test]
    fn text_is_one_visible_line_without_secrets() {
        let text = "{\n \"message\": \"no \u{202e}city\u{1b}[2J of hunter2 hunter2\"}";
        let expected = "\"{ \"message\": \"no \\u{202e}city\\u{1b}[2J of [secret]\"}\"";
        assert_eq!(quoted(text, TextEnd::Head).as_deref(), Some(expected));
        assert_eq!(quoted(" \n\t", TextEnd::Head), None);
        let token = format!("echo gh{}_{}", "p", "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6");
        assert_eq!(
            quoted(&token, TextEnd::Head).as_deref(),
            Some(WITH_CREDENTIAL)
        );
    }

    #[test]
    fn long_text_is_cut_at_the_right_end() {
        let long = format!("first {} last", "é".repeat(MAX_BYTES));
        let head = quoted(&long, TextEnd::Head).unwrap();
        assert!(
            head.starts_with("\"first") && head.ends_with("é...\"") && head.len() <= MAX_BYTES + 5,
            "{head}"
        );
        let tail = quoted(&long, TextEnd::Tail).unwrap();
        assert!(
            tail.starts_with("\"...é") && tail.ends_with("last\"") && tail.len() <= MAX_BYTES + 5,
            "{tail}"
        );
        // A secret across the cut is redacted before the cut.
        let across = format!("{}hunter2 hunter2", "x".repeat(MAX_BYTES - 5));
        assert!(!quoted(&across, TextEnd::Head).unwrap().contains("hunter"));
    }
}
