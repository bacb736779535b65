//! Position of a parser in a document, so that errors name the path and never the content.

use std::cell::Cell;
use std::fmt;

use serde_json::error::Category;

/// Position of the parser; shared by its parts.
#[derive(Debug, Default)]
pub(super) struct At {
    json_path: Cell<JsonPath>,
    reason: Cell<Option<&'static str>>,
}

/// A path in a record or a turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JsonPath {
    turn: Option<usize>,
    digest: bool,
    member: Option<&'static str>,
}

impl JsonPath {
    /// Returns the path of a turn in a record.
    pub(super) const fn turn(index: usize) -> Self {
        Self {
            turn: Some(index),
            digest: false,
            member: None,
        }
    }

    /// Returns the path of this turn's digest.
    pub(super) const fn digest(self) -> Self {
        Self {
            digest: true,
            ..self
        }
    }

    /// Returns the path of a member of this object, or of the object itself.
    pub(super) const fn member(self, member: Option<&'static str>) -> Self {
        Self { member, ..self }
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut dot = "";
        if let Some(index) = self.turn {
            write!(f, "turns[{index}]")?;
            dot = ".";
        }
        if self.digest {
            write!(f, "{dot}TrajectoryDigest")?;
            dot = ".";
        }
        self.member
            .map_or(Ok(()), |member| write!(f, "{dot}{member}"))
    }
}

impl At {
    pub(super) fn get(&self) -> JsonPath {
        self.json_path.get()
    }

    pub(super) fn set(&self, json_path: JsonPath) {
        self.json_path.set(json_path);
    }

    /// Sets the reason of an error, and returns an error that stops the parser.
    pub(super) fn fail<E: serde::de::Error>(&self, reason: &'static str) -> E {
        self.reason.set(Some(reason));
        E::custom(reason)
    }

    /// Returns the message of an error.
    ///
    /// It uses only the position from the parser's own message, which may quote text.
    pub(super) fn message(&self, error: &serde_json::Error) -> String {
        let json_path = self.json_path.get();
        let reason = match (self.reason.get(), error.classify()) {
            (Some(reason), _) => reason.to_owned(),
            (None, Category::Data) => expected(json_path.member).to_owned(),
            (None, Category::Eof) => "the JSON ends too early".to_owned(),
            (None, _) => format!(
                "no JSON at line {}, column {}",
                error.line(),
                error.column()
            ),
        };
        let json_path = json_path.to_string();
        if json_path.is_empty() {
            reason
        } else {
            format!("{json_path}: {reason}")
        }
    }
}

const fn expected(member: Option<&'static str>) -> &'static str {
    let Some(member) = member else {
        return "must be an object";
    };
    match member.as_bytes() {
        b"turns" => "must be a list",
        b"opening" | b"pinned" => "must be null or a string",
        b"TrajectoryDigest" => "must be null or an object",
        b"ToolsInvoked" | b"ArtifactsRefs" | b"ArtifactsHiddenRefs" => {
            "must be null or a list of strings"
        }
        _ => "must be a string",
    }
}
