//! Formats a commit message.

use std::fmt;

use super::parse::{LIST, subject};
use super::{Message, Note, Scope};
use helmdeck_core::text;
use helmdeck_git::trailer;

/// Value of a missing key.
pub(crate) const NONE: &str = "none";

impl fmt::Display for Message {
    /// Writes the message in git's normal form: each section once, no trailing white space, no
    /// double empty lines.
    ///
    /// Free text cannot act as a heading, a trailer or another message: such a line is indented by
    /// a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut paragraphs = vec![self.subject_line()];
        let what: Vec<String> = self
            .what
            .iter()
            .map(|item| line(item))
            .filter(|item| !item.is_empty())
            .collect();
        if !what.is_empty() {
            paragraphs.push(format!("## What\n{}", bullets(what)));
        }
        if !self.why.trim().is_empty() {
            paragraphs.push(format!("## Why\n{}", text(&self.why)));
        }
        for section in &self.sections {
            paragraphs.push(
                format!("## {}\n{}", line(&section.title), text(&section.text))
                    .trim_end()
                    .to_owned(),
            );
        }
        if !self.memory.is_empty() {
            paragraphs.push(format!(
                "## Memory\n{}",
                bullets(self.memory.iter().map(note))
            ));
        }
        paragraphs.extend(self.backtrace());
        paragraphs.extend(self.trailers());
        writeln!(f, "{}", paragraphs.join("\n\n"))
    }
}

impl Message {
    /// Returns the first line.
    #[must_use]
    pub fn subject_line(&self) -> String {
        let text = line(&self.subject);
        let subject = self.with_scope(&text);
        subject.trim_end().to_owned()
    }

    fn with_scope(&self, text: &str) -> String {
        let scope = match &self.scope {
            Scope::Key(key) => Some(key.as_str()),
            Scope::Session => Some("session"),
            Scope::None => None,
        };
        scope.map_or_else(|| text.to_owned(), |scope| format!("[{scope}] {text}"))
    }

    fn backtrace(&self) -> Option<String> {
        let from = &self.backtrace;
        let parent = from.parent.as_ref().map(|parent| match &from.remark {
            Some(remark) => format!("Parent: {} ({})", line(parent), line(remark)),
            None => format!("Parent: {}", line(parent)),
        });
        let field = |name: &str, value: &Option<String>| {
            value
                .as_ref()
                .map(|value| format!("{name}: {}", line(value)))
        };
        let fields = [
            parent,
            field("Linear", &from.linear),
            field("Session", &from.session),
        ];
        let lines: Vec<String> = fields.into_iter().flatten().collect();
        (!lines.is_empty()).then(|| format!("## Backtrace\n{}", bullets(lines)))
    }

    fn trailers(&self) -> Option<String> {
        let all = &self.trailers;
        let known = [
            ("Forge-Parent", &all.parent),
            ("Forge-Linear", &all.linear),
            ("Forge-Session", &all.session),
            ("Forge-Session-Id", &all.session_id),
            ("Forge-Code-Tree", &all.code_tree),
            ("Forge-Checkpoint", &all.checkpoint),
        ];
        let known = known
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        let features = all.features.iter().map(|feature| {
            let value = format!("{}={}", feature.id, feature.status);
            ("Forge-Feature".to_owned(), value)
        });
        let lines: Vec<String> = known
            .chain(features)
            .chain(all.other.iter().cloned())
            .map(|(name, value)| format!("{name}: {}", line(&value)))
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn note(note: &Note) -> String {
    match note {
        Note::Learned(text) => format!("Learned: {}", line(text)),
        Note::Updated(text) => format!("Updated: {}", line(text)),
        Note::Invariant(text) => format!("Invariant: {}", line(text)),
        Note::None => "None".to_owned(),
        Note::Other(text) => line(text),
    }
}

fn bullets(items: impl IntoIterator<Item = String>) -> String {
    items
        .into_iter()
        .map(|item| format!("- {item}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Turns a text into one line.
pub(super) fn line(text: &str) -> String {
    text::collapse_whitespace(text)
}

/// Turns a text into lines that have no meaning in the format.
pub(super) fn text(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<String> = Vec::new();
    for line in text.trim_matches('\n').lines().map(str::trim_end) {
        let after_empty = lines.last().is_none_or(String::is_empty);
        if line.is_empty() && after_empty {
            continue;
        }
        let ours =
            trailer(line).is_some_and(|(name, _)| name.to_ascii_lowercase().starts_with("forge-"));
        let begins =
            after_empty && subject(line.strip_prefix("* ").unwrap_or(line)).0 != Scope::None;
        let passes = line.starts_with('#') || ours || begins || line == LIST;
        lines.push(if passes {
            format!(" {line}")
        } else {
            line.to_owned()
        });
    }
    lines.join("\n").trim_end().to_owned()
}
