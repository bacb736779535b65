//! Outbox: operations that wait for the tracker, oldest first. One JSON object on a line.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use helmdeck_forge_files::error::{Category, Error, Result};
use helmdeck_forge_files::files::Files;
use helmdeck_forge_files::layout::LINEAR_OUTBOX;
use helmdeck_forge_files::time::Time;

use crate::marks;

use super::{Field, MAX_ATTEMPTS, Value};

/// Maximum number of waiting operations. Further ones are refused; none is dropped.
pub const MAX_WAITING: usize = 10_000;

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Creates an issue.
    Create,
    /// Changes fields of an issue.
    #[default]
    Update,
    /// Adds a comment.
    Comment,
}

/// An operation that waits for the tracker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// Its id: a UUID. The tracker gets it, so that a repeated operation is carried out once.
    pub op_id: String,
    /// Its kind.
    pub kind: OperationKind,
    /// The key of the issue, which may be an earlier one; of a local one the name of its file.
    pub issue: String,
    /// The changed fields with their new values; `null` for a field that is emptied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub patch: BTreeMap<Field, Option<Value>>,
    /// The values that both sides had before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub base: BTreeMap<Field, Option<Value>>,
    /// Whether the tracker may have carried it out already. Then the same values are sent again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// The text of a comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// When it was added.
    pub made_at: Time,
    /// Number of failed attempts.
    #[serde(default)]
    pub attempts: u32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Time>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Whether it fails the same way until a person changes something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

impl Operation {
    /// Makes an operation.
    #[must_use]
    pub fn new(op_id: String, kind: OperationKind, issue: String, made_at: Time) -> Self {
        Self {
            op_id,
            kind,
            issue,
            made_at,
            ..Self::default()
        }
    }

    /// Returns the key of its issue, without the mark.
    #[must_use]
    pub fn key(&self) -> String {
        marks::split(&self.issue).0.to_owned()
    }

    /// Says whether somebody must look at it.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.stopped || self.attempts >= MAX_ATTEMPTS
    }

    /// Says whether it is tried now.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        !self.stopped && self.next_at.is_none_or(|at| at <= now)
    }
}

/// The waiting operations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outbox {
    /// The operations, oldest first.
    pub waiting: Vec<Operation>,
    /// Lines that cannot be read. They stay in the file.
    pub damaged: Vec<String>,
}

impl Outbox {
    /// Reads the outbox.
    ///
    /// # Errors
    /// The errors from reading.
    pub fn read(files: &Files) -> Result<Self> {
        let bytes = files.read(LINEAR_OUTBOX)?.unwrap_or_default();
        let mut outbox = Self::default();
        for line in String::from_utf8_lossy(&bytes)
            .lines()
            .filter(|line| !line.trim().is_empty())
        {
            match serde_json::from_str(line) {
                Ok(operation) => outbox.waiting.push(operation),
                Err(_) => outbox.damaged.push(line.to_owned()),
            }
        }
        Ok(outbox)
    }

    /// Changes the outbox under the lock.
    ///
    /// # Errors
    /// `Refused` (`E_OUTBOX_FULL`) for more than [`MAX_WAITING`] operations; errors from writing.
    pub fn edit<T>(files: &Files, change: impl FnOnce(&mut Vec<Operation>) -> T) -> Result<T> {
        let _guard = files.lock()?;
        let mut outbox = Self::read(files)?;
        let before = outbox.waiting.clone();
        let answer = change(&mut outbox.waiting);
        if outbox.waiting == before {
            return Ok(answer);
        }
        if outbox.waiting.len() > MAX_WAITING && outbox.waiting.len() > before.len() {
            let message = format!("{MAX_WAITING} changes wait for the tracker: no more are taken");
            return Err(Error::new(Category::Refused, "E_OUTBOX_FULL", message)
                .hint("deliver them first")
                .next("helmdeck forge tracker sync"));
        }
        let mut text = String::new();
        let lines = outbox
            .waiting
            .iter()
            .map(|operation| serde_json::to_string(operation).unwrap_or_default());
        for line in outbox.damaged.iter().cloned().chain(lines) {
            text.push_str(&line);
            text.push('\n');
        }
        if text.is_empty() {
            files.remove(LINEAR_OUTBOX)?;
        } else {
            files.write(LINEAR_OUTBOX, text.as_bytes())?;
        }
        Ok(answer)
    }

    /// Returns the operations that somebody must look at.
    pub fn failed(&self) -> impl Iterator<Item = &Operation> {
        self.waiting
            .iter()
            .filter(|operation| operation.has_failed())
    }
}
