//! Form of a file by its path, and the check whether the file is valid.

use crate::config::Config;
use crate::documents::kind_of;
use crate::files::{Damage, Kind, Unreadable, text};
use crate::json::Json;
use crate::layout::{CONFIG, PROGRESS, SESSIONS};

/// Form of a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// A typed JSON document.
    Document(&'static Kind),
    /// A JSON value on each line.
    Lines,
    /// The progress of a session.
    Text,
    /// The settings.
    Config,
}

/// Damage of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// A newer program wrote it; with its version.
    Newer(String),
    /// The whole file is unreadable.
    Whole(Damage),
    /// The number of lines that cannot be parsed; the others are readable.
    Lines {
        /// The first of them.
        first: Damage,
        /// Number of damaged lines.
        count: usize,
    },
}

impl Wrong {
    /// Returns the position and the kind of the damage.
    pub(super) fn detail(&self) -> String {
        let place = |at: &Damage| format!("line {}, column {}: {}", at.line, at.column, at.what);
        match self {
            Self::Newer(version) => version.clone(),
            Self::Whole(at) => place(at),
            Self::Lines {
                first, count: 1, ..
            } => format!("{}; this line is passed over", place(first)),
            Self::Lines { first, count, .. } => {
                format!("{}; {count} lines are passed over", place(first))
            }
        }
    }
}

impl From<Unreadable> for Wrong {
    fn from(why: Unreadable) -> Self {
        match why {
            Unreadable::Newer(version) => Self::Newer(version),
            Unreadable::Damaged(at) => Self::Whole(at),
        }
    }
}

/// Returns the form of the file at a path, if the file belongs to the memory.
pub(super) fn form(path: &str) -> Option<Form> {
    match path {
        CONFIG => return Some(Form::Config),
        PROGRESS => return Some(Form::Text),
        _ => {}
    }
    if let Some(kind) = kind_of(path) {
        return Some(Form::Document(kind));
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if path.starts_with(SESSIONS) && name.starts_with("progress") && name.ends_with(".txt") {
        return Some(Form::Text);
    }
    (path.starts_with(".forge/") && path.ends_with(".jsonl")).then_some(Form::Lines)
}

/// Checks the bytes of a file.
pub(super) fn check(form: Form, bytes: &[u8]) -> Result<(), Wrong> {
    match form {
        Form::Document(kind) => kind.check(bytes).map_err(Wrong::from),
        Form::Lines => check_lines(bytes),
        Form::Text => check_text(bytes),
        Form::Config if bytes.is_empty() => Ok(()),
        Form::Config => Config::parse(text(bytes).map_err(Wrong::Whole)?)
            .map(drop)
            .map_err(Wrong::Whole),
    }
}

/// Checks a text. An empty one is valid, and so is one with merge markers: readers skip bad lines.
fn check_text(bytes: &[u8]) -> Result<(), Wrong> {
    match (std::str::from_utf8(bytes), bytes.contains(&0)) {
        (Ok(_), false) => Ok(()),
        _ => text(bytes).map(drop).map_err(Wrong::Whole),
    }
}

/// Says whether a line is valid JSON; `None` for an empty line.
fn is_value(line: &[u8]) -> Option<bool> {
    let good =
        || std::str::from_utf8(line).is_ok_and(|line| serde_json::from_str::<Json>(line).is_ok());
    (!line.trim_ascii().is_empty()).then(good)
}

fn check_lines(bytes: &[u8]) -> Result<(), Wrong> {
    let (mut good, mut bad, mut first) = (0, 0, None);
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        match is_value(line) {
            None => {}
            Some(true) => good += 1,
            Some(false) => {
                bad += 1;
                first.get_or_insert(at + 1);
            }
        }
    }
    let Some(line) = first else { return Ok(()) };
    let first = Damage {
        line,
        column: 1,
        what: "expected one JSON value on each line".to_owned(),
    };
    Err(if good == 0 {
        Wrong::Whole(first)
    } else {
        Wrong::Lines { first, count: bad }
    })
}

/// Returns the valid lines of a file, and the number of damaged ones.
pub(super) fn salvage(form: Form, bytes: &[u8]) -> (Vec<u8>, usize) {
    let keep_empty = matches!(form, Form::Text);
    let ends = bytes.ends_with(b"\n");
    let mut kept = Vec::new();
    let mut lost = 0;
    let count = bytes.split(|byte| *byte == b'\n').count();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() && (!keep_empty || at + 1 == count && ends) {
            continue;
        }
        let good = match form {
            Form::Text => Some(!line.contains(&0) && std::str::from_utf8(line).is_ok()),
            _ => is_value(line),
        };
        match good {
            Some(true) => {
                kept.extend_from_slice(line);
                kept.push(b'\n');
            }
            Some(false) => lost += 1,
            None => {}
        }
    }
    (kept, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_as_damaged_is_what_is_taken_out() {
        let twice = "{\"a\":1,\"a\":2}";
        for (bad, lines) in [
            (0, "{\"a\":1}\n  \n[]\n"),
            (1, &format!("{{}}\n{twice}\n")),
            (2, "1\n{\n\t\n}\n2"),
        ] {
            let named = match check(Form::Lines, lines.as_bytes()) {
                Ok(()) => 0,
                Err(Wrong::Lines { count, .. }) => count,
                Err(other) => panic!("{lines:?}: {other:?}"),
            };
            let (kept, lost) = salvage(Form::Lines, lines.as_bytes());
            assert_eq!((named, lost), (bad, bad), "{lines:?}");
            assert_eq!(check(Form::Lines, &kept), Ok(()), "{lines:?}");
        }
    }
}
