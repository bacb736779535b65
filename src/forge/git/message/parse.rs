//! Parser of commit messages. Never fails.
//!
//! It handles missing headings, foreign line ends, several blocks after a squash, added sections,
//! and free text of a person.

use serde::Serialize;

use super::{Backtrace, Feature, MAX_BYTES, Message, Note, Scope, Section, Trailers};
pub use crate::issues::is_key;
use helmdeck_git::trailer;

/// First line of a `merge --squash` message.
pub(super) const LIST: &str = "Squashed commit of the following:";

/// A parsed message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parsed {
    /// The messages in it, in order: several after a squash, none if it is empty.
    pub messages: Vec<Message>,
    /// The layout of each message, for the rules.
    #[serde(skip)]
    pub(super) shapes: Vec<Shape>,
}

/// Layout of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Line of the subject, from 1.
    pub(super) line: u32,
    /// The subject as written.
    pub(super) subject: String,
    /// Whether an empty line, or nothing, follows the subject.
    pub(super) apart: bool,
    /// The headings, in order.
    pub(super) headings: Vec<String>,
    /// Whether lines end with CR LF.
    pub(super) crlf: bool,
    /// The full text.
    pub(super) text: String,
}

impl Parsed {
    /// Returns the issue keys, without duplicates.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        unique(self.messages.iter().filter_map(Message::key))
    }

    /// Returns the sessions, without duplicates.
    #[must_use]
    pub fn sessions(&self) -> Vec<&str> {
        unique(self.messages.iter().filter_map(Message::session))
    }
}

fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for item in all {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// Says whether a text is a session name: `2025-12-24-session-001`.
#[must_use]
pub fn is_session(text: &str) -> bool {
    let Some((date, number)) = text.split_once("-session-") else {
        return false;
    };
    let date_shape = date.len() == 10
        && date.bytes().enumerate().all(|(at, byte)| {
            if matches!(at, 4 | 7) {
                byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        });
    date_shape
        && (3..=6).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns everything that looks like an issue key, without duplicates.
///
/// The text may be a branch name (`feature/SX9-123-nats`). Names of standards match too
/// (`RFC-9060`).
#[must_use]
pub fn keys(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    unique(words.flat_map(pairs).filter(|pair| is_key(pair)))
}

/// Returns the neighbouring pairs of the hyphen-separated parts of a word.
fn pairs(word: &str) -> impl Iterator<Item = &str> {
    let begins = std::iter::once(0).chain(word.match_indices('-').map(|(at, _)| at + 1));
    begins.filter_map(move |begin| {
        let rest = &word[begin..];
        let (first, second) = rest.split_once('-')?;
        let end = second.find('-').unwrap_or(second.len());
        rest.get(..first.len() + 1 + end)
    })
}

/// Removes what git removes after editing.
///
/// These are lines that begin with `#` but are no heading, and everything after the scissors line.
#[must_use]
pub fn strip_comments(text: &str) -> String {
    let shown = text
        .lines()
        .take_while(|line| !(line.starts_with("# ---") && line.contains(">8")));
    shown
        .filter(|line| !is_comment(line))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// Says whether git removes a line as a comment, and it is no heading.
pub(crate) fn is_comment(line: &str) -> bool {
    line.starts_with('#') && !line.starts_with("## ")
}

/// Parses a message. Of one longer than [`MAX_BYTES`], only the beginning is parsed.
#[must_use]
pub fn parse(text: &str) -> Parsed {
    let text = &text[..text.floor_char_boundary(MAX_BYTES)];
    let crlf = text.contains('\r');
    let text = text
        .trim_start_matches('\u{feff}')
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let mut parsed = Parsed {
        messages: Vec::new(),
        shapes: Vec::new(),
    };
    for (line, block) in blocks(&text) {
        let (message, mut shape) = message(&block);
        (shape.line, shape.crlf) = (line, crlf);
        parsed.messages.push(message);
        parsed.shapes.push(shape);
    }
    parsed
}

/// Splits a text into its messages. Returns each with the number of its first line.
fn blocks(text: &str) -> Vec<(u32, Vec<&str>)> {
    let listed = text.lines().any(|line| line == LIST);
    let mut all: Vec<(u32, Vec<&str>)> = Vec::new();
    let mut begin = true;
    for (number, line) in (1..).zip(text.lines()) {
        let mut line = line.trim_end();
        // Before each message, `rebase` puts a comment, and `merge --squash` a line with the commit
        // id.
        if line.starts_with("# This is ")
            || (listed && is_commit_line(line))
            || (listed && line.starts_with("Squashed "))
        {
            begin = true;
            all.push((number + 1, Vec::new()));
            continue;
        }
        if listed {
            if let Some(("Author" | "Date" | "Merge" | "AuthorDate" | "Commit" | "CommitDate", _)) =
                trailer(line)
            {
                continue;
            }
            line = line.strip_prefix("    ").unwrap_or(line);
        }
        if begin && !line.is_empty() {
            // A code host turns a squashed pull request into a list of messages.
            let inner = line.strip_prefix("* ").unwrap_or(line);
            if subject(inner).0 != Scope::None {
                all.push((number, vec![inner]));
                begin = false;
                continue;
            }
        }
        begin = line.is_empty();
        match all.last_mut() {
            Some((_, lines)) => lines.push(line),
            None => all.push((number, vec![line])),
        }
    }
    for (number, lines) in &mut all {
        let empty = lines.iter().take_while(|line| line.is_empty()).count();
        lines.drain(..empty);
        *number += u32::try_from(empty).unwrap_or_default();
    }
    all.retain(|(_, lines)| !lines.is_empty());
    all
}

fn is_commit_line(line: &str) -> bool {
    line.strip_prefix("commit ")
        .is_some_and(|rest| is_hex(rest.split(' ').next().unwrap_or_default()))
}

fn is_hex(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses a subject into scope and rest.
pub(super) fn subject(line: &str) -> (Scope, String) {
    if let Some((inner, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
        let scope = match inner {
            "session" => Scope::Session,
            key if is_key(key) => Scope::Key(key.to_owned()),
            _ => Scope::None,
        };
        if scope != Scope::None {
            return (scope, rest.trim().to_owned());
        }
    }
    (Scope::None, line.trim().to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before any heading: each line shows its own meaning.
    Anywhere,
    What,
    Why,
    Memory,
    Backtrace,
    Other,
}

/// Parses one message.
fn message(lines: &[&str]) -> (Message, Shape) {
    let (first, rest) = lines
        .split_first()
        .map_or(("", lines), |(first, rest)| (*first, rest));
    let (scope, text) = subject(first);
    let mut message = Message {
        scope,
        subject: text,
        ..Message::default()
    };
    let mut shape = Shape {
        subject: first.to_owned(),
        apart: rest.first().is_none_or(|line| line.is_empty()),
        text: lines.join("\n"),
        ..Shape::default()
    };
    let body = rest.len() - last_trailers(rest);
    let (mut at, mut open) = (At::Anywhere, false);
    let mut why: Vec<&str> = Vec::new();
    for (number, line) in rest.iter().enumerate() {
        if let Some((name, value)) =
            trailer(line).filter(|(name, _)| number >= body || is_ours(name))
        {
            put(&mut message.trailers, name, value);
            open = false;
            continue;
        }
        if number >= body {
            // A continuation line of the trailer before.
            if let Some((_, value)) = message
                .trailers
                .other
                .last_mut()
                .filter(|_| !line.is_empty())
            {
                value.push(' ');
                value.push_str(line.trim());
            }
            continue;
        }
        if let Some(title) = line.strip_prefix("## ") {
            at = heading(title, &mut message.sections);
            shape.headings.push(title.trim().to_ascii_lowercase());
            open = false;
            continue;
        }
        if at == At::Why {
            why.push(line);
            continue;
        }
        if at == At::Other {
            if let Some(section) = message.sections.last_mut() {
                section.text.push_str(line);
                section.text.push('\n');
            }
            continue;
        }
        if line.is_empty() {
            open = false;
            why.push("");
            continue;
        }
        match line
            .strip_prefix("- ")
            .or_else(|| line.strip_prefix("* "))
            .map(str::trim)
        {
            Some(item) => {
                bullet(&mut message, at, item);
                open = true;
            }
            None if open && line.starts_with([' ', '\t']) => go_on(&mut message, line.trim()),
            None if at == At::What => message.what.push(line.trim().to_owned()),
            None => why.push(line),
        }
    }
    message.why = paragraphs(&why);
    message
        .sections
        .iter_mut()
        .for_each(|section| section.text = section.text.trim_matches('\n').to_owned());
    (message, shape)
}

/// Returns the number of trailer lines at the end: the last paragraph, if it consists of trailers.
fn last_trailers(lines: &[&str]) -> usize {
    let last = lines.iter().rev().skip_while(|line| line.is_empty());
    let empty = lines
        .iter()
        .rev()
        .take_while(|line| line.is_empty())
        .count();
    let paragraph: Vec<&str> = last.take_while(|line| !line.is_empty()).copied().collect();
    // The paragraph was read backwards. Its first line cannot be a continuation.
    let first = paragraph.last().is_some_and(|line| trailer(line).is_some());
    let all = paragraph
        .iter()
        .all(|line| trailer(line).is_some() || line.starts_with([' ', '\t']));
    // The first paragraph of the body follows the subject, and may be the only one.
    if first && all {
        paragraph.len() + empty
    } else {
        0
    }
}

fn is_ours(name: &str) -> bool {
    name.get(..6)
        .is_some_and(|start| start.eq_ignore_ascii_case("Forge-"))
}

fn heading(title: &str, sections: &mut Vec<Section>) -> At {
    match title.trim().to_ascii_lowercase().as_str() {
        "what" => At::What,
        "why" => At::Why,
        "memory" => At::Memory,
        "backtrace" => At::Backtrace,
        _ => {
            sections.push(Section {
                title: title.trim().to_owned(),
                text: String::new(),
            });
            At::Other
        }
    }
}

fn bullet(message: &mut Message, at: At, item: &str) {
    let field = field(item).filter(|_| matches!(at, At::Anywhere | At::Backtrace));
    if let Some((name, value)) = field {
        backtrace(&mut message.backtrace, name, value);
        return;
    }
    match (at, note(item)) {
        (At::Memory | At::Anywhere, Some(note)) => message.memory.push(note),
        (At::Memory, None) => message.memory.push(Note::Other(item.to_owned())),
        // Ignore unknown items of the backtrace.
        (At::Backtrace, _) => {}
        _ => message.what.push(item.to_owned()),
    }
}

fn go_on(message: &mut Message, line: &str) {
    let last = match message.memory.last_mut() {
        Some(
            Note::Learned(text) | Note::Updated(text) | Note::Invariant(text) | Note::Other(text),
        ) => Some(text),
        _ => message.what.last_mut(),
    };
    if let Some(text) = last {
        text.push(' ');
        text.push_str(line);
    }
}

fn note(item: &str) -> Option<Note> {
    if item == "None" {
        return Some(Note::None);
    }
    let (name, text) = item.split_once(':')?;
    let text = text.trim().to_owned();
    match name {
        "Learned" => Some(Note::Learned(text)),
        "Updated" => Some(Note::Updated(text)),
        "Invariant" => Some(Note::Invariant(text)),
        _ => None,
    }
}

/// Parses a line of the backtrace. `None` for a line without a valid value.
fn field(item: &str) -> Option<(&str, &str)> {
    let (name, value) = item.split_once(": ")?;
    let value = value.trim();
    let fits = match name {
        "Parent" => is_hex(value.split(' ').next().unwrap_or_default()),
        "Linear" => is_key(value) || value == super::write::NONE,
        "Session" => !value.is_empty() && !value.contains(' '),
        _ => false,
    };
    fits.then_some((name, value))
}

fn backtrace(backtrace: &mut Backtrace, name: &str, value: &str) {
    match name {
        "Parent" => {
            let (parent, remark) = value.split_once(' ').unwrap_or((value, ""));
            let remark = remark.trim();
            let remark = remark
                .strip_prefix('(')
                .and_then(|text| text.strip_suffix(')'))
                .unwrap_or(remark);
            backtrace.parent = Some(parent.to_owned());
            backtrace.remark = Some(remark.to_owned()).filter(|text| !text.is_empty());
        }
        "Linear" => backtrace.linear = Some(value.to_owned()),
        _ => backtrace.session = Some(value.to_owned()),
    }
}

/// Stores a trailer. The first of a name counts.
fn put(trailers: &mut Trailers, name: &str, value: &str) {
    let one = match name.to_ascii_lowercase().as_str() {
        "forge-parent" => &mut trailers.parent,
        "forge-linear" => &mut trailers.linear,
        "forge-session" => &mut trailers.session,
        "forge-session-id" => &mut trailers.session_id,
        "forge-code-tree" => &mut trailers.code_tree,
        "forge-checkpoint" => &mut trailers.checkpoint,
        "forge-feature" => {
            if let Some((id, status)) = value.split_once('=') {
                trailers.features.push(Feature {
                    id: id.trim().to_owned(),
                    status: status.trim().to_owned(),
                });
            }
            return;
        }
        _ => {
            trailers.other.push((name.to_owned(), value.to_owned()));
            return;
        }
    };
    if one.is_none() {
        *one = Some(value.to_owned());
    }
}

/// Joins lines, and collapses several empty lines into one.
fn paragraphs(lines: &[&str]) -> String {
    let mut text = String::new();
    let mut empty = false;
    for line in lines {
        if line.is_empty() {
            empty = !text.is_empty();
            continue;
        }
        if !text.is_empty() {
            text.push_str(if empty { "\n\n" } else { "\n" });
        }
        text.push_str(line);
        empty = false;
    }
    text
}
