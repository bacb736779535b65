//! A conversation as it leaves one store and enters another.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use helmdeck_core::Json;

use crate::config::Strategy;
use crate::turn::ConversationTurn;

/// A conversation, exported.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The strategy that it was made under; it is restored under no other.
    pub strategy: Option<Strategy>,
    /// The JSON of a [`Record`] (see [`crate::wire`]); may be empty.
    pub bytes: Bytes,
}

impl Snapshot {
    /// Says whether there is neither a strategy nor anything else. A strategy alone is not empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strategy.is_none() && self.bytes.is_empty()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("strategy", &self.strategy).field("bytes", &self.bytes.len()).finish()
    }
}

/// What the bytes of a snapshot hold: `{"strategy": ..., "turns": [...], "summary": "..."}`; `turns` and `summary` are left out if
/// empty. The keys and their order are those of the original.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The strategy.
    pub strategy: Strategy,
    /// The turns that are not in the summary, oldest first.
    pub turns: Vec<ConversationTurn>,
    /// The summary of the turns before them.
    pub summary: String,
    /// What the user asked for at first, if that is known (`opening`; not in the original).
    pub opening: Option<String>,
    /// Members that this version does not know, by name, kept as they were written.
    pub other: BTreeMap<String, Json>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("strategy", &self.strategy)
            .field("turns", &self.turns.len())
            .field("summary_bytes", &self.summary.len())
            .finish_non_exhaustive()
    }
}
