//! The commit message format: what was done and why, what was learned, and the parent state
//! (RFC-9060, Commit Protocol).
//!
//! ```text
//! [SX9-123] Brief description
//!
//! ## What
//! - Specific change 1
//!
//! ## Why
//! Rationale for the change
//!
//! ## Memory
//! - Updated: features.json (FORGE-002 now passing)
//!
//! ## Backtrace
//! - Parent: abc1234 (previous working state)
//! - Linear: SX9-123
//! - Session: 2025-12-24-session-001
//!
//! Forge-Parent: abc1234…
//! Forge-Linear: SX9-123
//! ```
//!
//! git treats the headings as comments, and an editor may drop them. The trailers therefore repeat
//! the same facts, and a message without headings can still be parsed.

mod lint;
mod parse;
mod write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use lint::placeholder;
pub use lint::{Finding, Severity, lint};
pub(crate) use parse::is_comment;
pub use parse::{Parsed, is_key, is_session, keys, parse, strip_comments};
pub(crate) use write::NONE;

/// Maximum number of bytes of a message that are read; the rest is ignored.
pub const MAX_BYTES: usize = 1 << 20;

/// Scope of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// An issue, by its key (`SX9-123`).
    Key(String),
    /// The session's own commit, made at its end.
    Session,
    /// No scope given.
    #[default]
    None,
}

/// A parsed commit message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// The scope.
    pub scope: Scope,
    /// The subject, without the scope.
    pub subject: String,
    /// The changes, one item each.
    #[serde(default)]
    pub what: Vec<String>,
    /// The rationale.
    #[serde(default)]
    pub why: String,
    /// The changes of the memory.
    #[serde(default)]
    pub memory: Vec<Note>,
    /// The backtrace section, for people.
    #[serde(default)]
    pub backtrace: Backtrace,
    /// The trailers, for programs.
    #[serde(default)]
    pub trailers: Trailers,
    /// Other sections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Section>,
}

/// A change of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "text", rename_all = "snake_case")]
pub enum Note {
    /// Something was learned.
    Learned(String),
    /// A file of the memory was changed.
    Updated(String),
    /// A new invariant: it must always hold from now on.
    Invariant(String),
    /// No change.
    None,
    /// A note that the format does not define.
    Other(String),
}

/// Origin of a commit, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Backtrace {
    /// The parent state: 7 to 64 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The remark on that state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// The issue key, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear: Option<String>,
    /// The session (`2025-12-24-session-001`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The trailers of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Trailers {
    /// `Forge-Parent`: the full id of the parent state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// `Forge-Linear`: the issue key, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear: Option<String>,
    /// `Forge-Session`: the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `Forge-Session-Id`: the unique id of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// `Forge-Code-Tree`: the tree without the memory. A rebase keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_tree: Option<String>,
    /// `Forge-Checkpoint`: the tag of the checkpoint that it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// `Forge-Feature`: the feature changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<Feature>,
    /// Others, such as `Signed-off-by`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other: Vec<(String, String)>,
}

/// Status change of a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feature {
    /// Its id (`FORGE-002`).
    pub id: String,
    /// Its status (`passing`), or `removed`.
    pub status: String,
}

/// A section that the format does not define.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Its lines.
    pub text: String,
}

impl Message {
    /// Returns the issue key of the commit: from its subject, its trailers or its backtrace.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        let subject = match &self.scope {
            Scope::Key(key) => Some(key.as_str()),
            Scope::Session | Scope::None => None,
        };
        let said = [
            self.trailers.linear.as_deref(),
            self.backtrace.linear.as_deref(),
        ];
        subject.or_else(|| said.into_iter().flatten().find(|key| is_key(key)))
    }

    /// Returns the session that made the commit.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        let said = [
            self.trailers.session.as_deref(),
            self.backtrace.session.as_deref(),
        ];
        said.into_iter()
            .flatten()
            .find(|session| is_session(session))
    }

    /// Says whether any part follows the format, so that a person did not just write it freely.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        let session = self.backtrace.session.is_some() || self.trailers.session.is_some();
        session
            || (self.scope != Scope::None
                && (self.backtrace.parent.is_some() || !self.memory.is_empty()))
    }
}

#[cfg(test)]
mod tests;
