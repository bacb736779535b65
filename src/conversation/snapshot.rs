//! Exported conversations.

use std::collections::BTreeMap;

use bytes::Bytes;
use helmdeck_core::Json;

use crate::config::Strategy;
use crate::turn::ConversationTurn;

/// An exported conversation.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Its strategy. It can be restored under this one only.
    pub strategy: Option<Strategy>,
    /// The JSON of a [`Record`] (see [`crate::wire`]); may be empty.
    pub bytes: Bytes,
}

impl Snapshot {
    /// Returns whether there are neither a strategy nor bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strategy.is_none() && self.bytes.is_empty()
    }
}

helmdeck_core::redacted_debug!(Snapshot, this => strategy = this.strategy, bytes = this.bytes.len());

/// Content of a snapshot: `{"strategy": ..., "turns": [...], "summary": "..."}`.
///
/// Empty `turns` and `summary` are left out. Keys and order are those of the Go original.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The strategy.
    pub strategy: Strategy,
    /// The turns that are not in the summary, oldest first.
    pub turns: Vec<ConversationTurn>,
    /// The summary of the turns before them.
    pub summary: String,
    /// The opening, if these turns don't have it (not in the original).
    pub opening: Option<String>,
    /// The pinned goal (not in the original).
    pub pinned: Option<String>,
    /// Members that this version doesn't know, by name, unchanged.
    pub other: BTreeMap<String, Json>,
}

helmdeck_core::redacted_debug!(Record, this => strategy = this.strategy, turns = this.turns.len(),
    summary_bytes = this.summary.len());
