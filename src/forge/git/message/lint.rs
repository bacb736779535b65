//! Rules of the message format.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parse::{Shape, is_key, is_session, parse};
use super::write::NONE;
use super::{Message, Note, Scope};

/// Subject length from which there is a warning, in characters.
const SUBJECT_WARNING: usize = 72;
/// Maximum length of a subject, in characters.
const SUBJECT_ERROR: usize = 100;
/// The sections, in order.
const SECTIONS: [&str; 4] = ["what", "why", "memory", "backtrace"];
/// Placeholders of the RFC's example message.
const PLACEHOLDERS: [&str; 9] = [
    "[key insight]",
    "Brief description",
    "Specific change 1",
    "Specific change 2",
    "Rationale for the change",
    "[description]",
    "[rationale]",
    "<description>",
    "TODO: describe",
];

/// Placeholder words for text that is still to be written.
const EMPTY_WORDS: [&str; 6] = ["TODO", "TBD", "FIXME", "XXX", "WIP", "placeholder"];

/// Severity of a finding.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Should be improved.
    Warning,
    /// Breaks the format.
    Error,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule: `subject-key`, `subject-length`, `subject-period`, `blank-line`, `section`,
    /// `section-order`, `headings`, `placeholder`, `memory`, `parent`, `linear`, `session`,
    /// `trailers`, `squash`, `line-ends`, `empty`; of a range also `ancestor`, `code-tree`.
    pub rule: String,
    /// The severity.
    pub severity: Severity,
    /// The line, from 1.
    pub line: u32,
    /// The problem, and what is expected.
    pub message: String,
}

/// Checks a message. An empty list means that it keeps every rule.
#[must_use]
pub fn lint(text: &str) -> Vec<Finding> {
    let parsed = parse(text);
    let mut rules = Rules {
        findings: Vec::new(),
        line: 1,
    };
    if parsed.messages.is_empty() {
        rules.error("empty", "the message is empty");
    }
    if parsed.messages.len() > 1 {
        let count = parsed.messages.len();
        rules.warning(
            "squash",
            format!(
                "{count} messages stand in one; the first counts for the subject, all for the trace"
            ),
        );
    }
    for (message, shape) in parsed.messages.iter().zip(&parsed.shapes) {
        rules.line = shape.line;
        rules.message(message, shape);
    }
    rules.findings
}

struct Rules {
    findings: Vec<Finding>,
    /// Line of the subject.
    line: u32,
}

impl Rules {
    fn add(&mut self, rule: &str, severity: Severity, line: u32, message: String) {
        self.findings.push(Finding {
            rule: rule.to_owned(),
            severity,
            line,
            message,
        });
    }

    fn error(&mut self, rule: &str, message: impl Into<String>) {
        self.add(rule, Severity::Error, self.line, message.into());
    }

    fn warning(&mut self, rule: &str, message: impl Into<String>) {
        self.add(rule, Severity::Warning, self.line, message.into());
    }

    fn message(&mut self, message: &Message, shape: &Shape) {
        if message.scope == Scope::None && !message.is_ours() {
            // More findings would not help.
            self.error(
                "subject-key",
                "it is written without the protocol: no key of an issue, [SX9-123], and no [session]",
            );
            return;
        }
        self.subject(message, shape);
        if !shape.apart {
            self.error("blank-line", "an empty line must follow the subject");
        }
        if shape.crlf {
            self.warning("line-ends", "lines must end with a line feed alone");
        }
        self.sections(message, shape);
        self.placeholders(message, shape);
        self.memory(message);
        self.backtrace(message);
        self.trailers(message);
    }

    fn subject(&mut self, message: &Message, shape: &Shape) {
        if message.scope == Scope::None {
            self.error(
                "subject-key",
                "the subject must begin with the key of an issue, [SX9-123], or with [session]",
            );
        }
        if message.subject.is_empty() {
            self.error("subject-key", "the subject says nothing");
        }
        let length = shape.subject.chars().count();
        if length > SUBJECT_ERROR {
            self.error(
                "subject-length",
                format!(
                    "the subject has {length} characters; more than {SUBJECT_ERROR} are refused"
                ),
            );
        } else if length > SUBJECT_WARNING {
            self.warning(
                "subject-length",
                format!("the subject has {length} characters; {SUBJECT_WARNING} are enough"),
            );
        }
        if message.subject.ends_with('.') {
            self.warning("subject-period", "the subject ends with a period");
        }
    }

    fn sections(&mut self, message: &Message, shape: &Shape) {
        let there = [
            !message.what.is_empty(),
            !message.why.is_empty(),
            !message.memory.is_empty(),
            message.backtrace.parent.is_some() || message.backtrace.session.is_some(),
        ];
        for (name, there) in SECTIONS.iter().zip(there) {
            if !there {
                self.error(
                    "section",
                    format!("the section {name:?} is absent or empty"),
                );
            }
        }
        let known: Vec<usize> = shape
            .headings
            .iter()
            .filter_map(|title| SECTIONS.iter().position(|name| name == title))
            .collect();
        if known.is_empty() && there.contains(&true) {
            let how = "the headings are gone; git takes them for comments unless commit.cleanup is scissors";
            self.warning("headings", how);
        }
        if !known.is_sorted_by(|a, b| a < b) {
            self.warning(
                "section-order",
                "the sections are in another order than What, Why, Memory, Backtrace, or twice there",
            );
        }
    }

    fn placeholders(&mut self, message: &Message, shape: &Shape) {
        for (number, line) in (shape.line..).zip(shape.text.lines()) {
            if let Some(found) = PLACEHOLDERS.iter().find(|text| line.contains(*text)) {
                self.add(
                    "placeholder",
                    Severity::Error,
                    number,
                    format!("{found:?} is to be replaced"),
                );
            }
        }
        let notes = message.memory.iter().filter_map(|note| match note {
            Note::Learned(text) | Note::Updated(text) | Note::Invariant(text) => Some(text),
            Note::None | Note::Other(_) => None,
        });
        let texts = message.what.iter().chain([&message.why]).chain(notes);
        for text in texts.filter(|text| !PLACEHOLDERS.iter().any(|found| text.contains(found))) {
            if let Some(found) = placeholder(text) {
                self.error("placeholder", format!("{found:?} is to be replaced"));
            }
        }
    }

    fn memory(&mut self, message: &Message) {
        if message
            .memory
            .iter()
            .any(|note| matches!(note, Note::Other(_)))
        {
            self.error(
                "memory",
                "a line of the memory must begin with Learned:, Updated: or Invariant:, or be None",
            );
        }
        if message.memory.len() > 1 && message.memory.contains(&Note::None) {
            self.error("memory", "None stands beside other lines");
        }
        let empty = |note: &Note| match note {
            Note::Learned(text) | Note::Updated(text) | Note::Invariant(text) => text.is_empty(),
            Note::None | Note::Other(_) => false,
        };
        if message.memory.iter().any(empty) {
            self.error("memory", "a line of the memory says nothing");
        }
    }

    fn backtrace(&mut self, message: &Message) {
        let from = &message.backtrace;
        if from.parent.is_none() {
            self.error(
                "parent",
                "the backtrace names no parent: 7 to 64 hex digits",
            );
        }
        match (from.linear.as_deref(), &message.scope) {
            (None, _) => self.error(
                "linear",
                "the backtrace has no line Linear: the key, or none",
            ),
            (Some(said), Scope::Key(key)) if said != key => {
                self.error(
                    "linear",
                    format!("the subject belongs to {key}, the backtrace says {said}"),
                );
            }
            _ => {}
        }
        match from.session.as_deref() {
            None => self.error("session", "the backtrace names no session"),
            Some(session) if !is_session(session) => {
                self.error(
                    "session",
                    format!("{session:?} is no session; wanted is 2025-12-24-session-001"),
                );
            }
            Some(_) => {}
        }
    }

    fn trailers(&mut self, message: &Message) {
        let (from, all) = (&message.backtrace, &message.trailers);
        let wanted = [
            ("Forge-Parent", &all.parent),
            ("Forge-Linear", &all.linear),
            ("Forge-Session", &all.session),
            ("Forge-Session-Id", &all.session_id),
            ("Forge-Code-Tree", &all.code_tree),
        ];
        let absent: Vec<&str> = wanted
            .iter()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| *name)
            .collect();
        if !absent.is_empty() {
            self.warning(
                "trailers",
                format!("trailers are absent: {}", absent.join(", ")),
            );
        }
        if let (Some(short), Some(full)) = (&from.parent, &all.parent)
            && !full
                .to_ascii_lowercase()
                .starts_with(&short.to_ascii_lowercase())
        {
            self.error(
                "trailers",
                "Forge-Parent is another commit than the parent of the backtrace",
            );
        }
        for (name, said, trailer) in [
            ("Linear", &from.linear, &all.linear),
            ("Session", &from.session, &all.session),
        ] {
            if let (Some(said), Some(trailer)) = (said, trailer)
                && said != trailer
            {
                self.error(
                    "trailers",
                    format!("Forge-{name} is {trailer:?}, the backtrace says {said:?}"),
                );
            }
        }
        if let Some(linear) = &all.linear
            && linear != NONE
            && !is_key(linear)
        {
            self.error("trailers", format!("Forge-Linear is no key: {linear:?}"));
        }
    }
}

/// Returns the placeholder in a text, if it has one.
///
/// A placeholder is a text of the RFC's example anywhere in it, or a whole text without meaning:
/// `TODO`, `...`, `-`, only something in brackets.
pub(crate) fn placeholder(text: &str) -> Option<String> {
    if let Some(found) = PLACEHOLDERS.into_iter().find(|found| text.contains(found)) {
        return Some(found.to_owned());
    }
    let whole = text.trim();
    let bare = whole.trim_matches(|letter: char| !letter.is_alphanumeric());
    let named = EMPTY_WORDS
        .iter()
        .any(|word| word.eq_ignore_ascii_case(bare));
    let marks = !whole.is_empty() && bare.is_empty();
    let bracketed = [("<", ">"), ("[", "]"), ("{", "}")]
        .iter()
        .any(|(open, close)| {
            let inner = whole
                .strip_prefix(open)
                .and_then(|rest| rest.strip_suffix(close));
            // A list in brackets, and code, have a meaning.
            let inner = inner.map(|inner| inner.trim_matches(['<', '>', '{', '}', ' ']));
            inner.is_some_and(|inner| {
                !inner.contains(['<', '>', '[', ']', '{', '}', '(', ',', '=', ':'])
            })
        });
    (named || marks || bracketed).then(|| whole.to_owned())
}
