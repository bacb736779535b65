//! A dialogue as rows of the store, and the only file that knows them.
//!
//! All rows of a dialogue are entries of kind `conversation` in the namespace (tenant, user, session):
//!
//! | key | holds |
//! |---|---|
//! | `~head` | [`Head`]: which turns there are. Every write to the dialogue replaces it, expecting the version that it read |
//! | `~checkpoint` | [`Checkpoint`]: the summary and how it is doing |
//! | `turn/<20 digits>` | a turn, under its sequence number; written once, never replaced |
//! | `once/<name>` | the sequence number of the turn that was added under this name; ends after a day |
//!
//! The keys sort so that one descending scan gives head, checkpoint and the newest turns, all of one moment. Because each write
//! expects the head that it read, what is written by several processes comes into one order, sequence numbers have no
//! gap that could be filled later, and none is given twice. Only turns with `first <= seq <= seq of the head` are there;
//! others are remains of something that was cut off, and are swept.
//!
//! Head and checkpoint start at a random version, so that those of a dialogue that was forgotten and begun anew are never taken for
//! the former ones by somebody who still holds on to those.

use std::collections::BTreeMap;
use std::sync::Arc;

use helmdeck_core::{Json, Timestamp};
use helmdeck_memory::{Namespace, Store};
use serde::{Deserialize, Serialize};

use crate::config::Strategy;
use crate::error::Result;
use crate::health::Health;
use crate::item::ItemId;
use crate::turn::ConversationTurn;

/// Which turns there are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The sequence number of the newest turn that was ever added; 0 = none. It never goes down.
    pub(crate) seq: u64,
    /// That of the oldest turn that is kept; `seq + 1` if none is.
    pub(crate) first: u64,
    /// How many turns are kept; fewer than `seq - first + 1` if some were deleted in between.
    pub(crate) turns: u64,
    /// What their values take, before they are sealed.
    pub(crate) bytes: u64,
    /// How often the dialogue was flushed, restored, or had a turn deleted.
    pub(crate) generation: u64,
}

/// The summary, and how it is doing.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// That of the head when this was written by a flush, restore or delete; a summary of an older one is thrown away.
    pub(crate) generation: u64,
    /// The strategy under which the dialogue was begun or restored.
    pub(crate) strategy: Strategy,
    /// The sequence number of the last turn in the summary; 0 = there is no summary.
    pub(crate) covers_through: u64,
    /// The summary of all turns through `covers_through`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) summary: String,
    /// What the summary was built upon, and cannot be made anew from turns that are kept: a restored summary, or one whose turns are
    /// no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Base>,
    /// What the user asked for at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) opening: Option<String>,
    /// The health.
    pub(crate) health: Health,
    /// How often the summarizer failed in a row.
    #[serde(default)]
    pub(crate) failures: u32,
    /// Why it failed last, in one fixed word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<String>,
    /// Members of a restored snapshot that this version does not know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) other: BTreeMap<String, Json>,
}

/// A summary that no kept turns stand behind.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Base {
    /// Its text.
    pub(crate) summary: String,
    /// The sequence number of the last turn in it.
    pub(crate) through: u64,
}

/// A turn as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its id, with its sequence number.
    pub(crate) id: ItemId,
    /// Its tokens, by the configured counter.
    pub(crate) tokens: u64,
    /// The bytes of its value, before it is sealed.
    pub(crate) bytes: u64,
    /// When it was stored.
    pub(crate) created_at: Timestamp,
    /// The turn.
    pub(crate) turn: Arc<ConversationTurn>,
}

/// Head and checkpoint of one moment, with the versions to expect when they are replaced (0 = not there).
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The head.
    pub(crate) head: Head,
    /// Its version.
    pub(crate) head_version: u64,
    /// When the head was last replaced; `None` = not there.
    pub(crate) touched_at: Option<Timestamp>,
    /// The checkpoint.
    pub(crate) checkpoint: Checkpoint,
    /// Its version.
    pub(crate) checkpoint_version: u64,
}

/// The rows of dialogues.
#[derive(Clone)]
pub(crate) struct Rows {
    store: Arc<dyn Store>,
}

impl Rows {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Returns the store, for locks and for what namespaces there are.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Reads head and checkpoint.
    ///
    /// # Errors
    /// `Corrupt` if one of them does not open; `Store`.
    pub(crate) async fn state(&self, namespace: &Namespace) -> Result<State> {
        let _ = namespace;
        todo!()
    }

    /// Reads kept turns with `from <= seq <= through`, oldest first, at most `limit`, and how many of them do not open.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn turns(
        &self,
        namespace: &Namespace,
        from: u64,
        through: u64,
        limit: usize,
    ) -> Result<(Vec<Kept>, u64)> {
        let _ = (namespace, from, through, limit);
        todo!()
    }

    /// Replaces the checkpoint if it is still at the version of `state` and the head at the same generation; returns the new version,
    /// `None` if somebody else was faster.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn commit(
        &self,
        namespace: &Namespace,
        state: &State,
        checkpoint: &Checkpoint,
    ) -> Result<Option<u64>> {
        let _ = (namespace, state, checkpoint);
        todo!()
    }
}
