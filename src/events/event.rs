//! The event types. An event names things; it never carries an input, an output or a secret.

use helmdeck_core::{PackName, Timestamp, Version};
use serde::Serialize;

/// Event of the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its place in the order of this bus, from 1, without gaps.
    pub sequence: u64,
    /// When it happened.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub at: Timestamp,
    /// Content of an event.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Content of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A pack was registered or replaced.
    PackRegistered {
        /// The pack.
        pack: PackName,
        /// Its version.
        version: Version,
    },
    /// A pack was removed.
    PackRemoved {
        /// The pack.
        pack: PackName,
        /// Its version.
        version: Version,
    },
    /// A manifest was refused.
    PackRefused {
        /// The manifest's file.
        file: String,
        /// The error, with its place.
        reason: String,
    },
    /// Cached answers were dropped.
    CachePurged {
        /// The selection of the purge (`tag github:a/b`).
        what: String,
        /// Number of deleted rows.
        rows: u64,
    },
    /// A call of the conversation memory had no tenant, user or session. Missing members are
    /// `null`.
    #[serde(rename = "memory.identity_rejected")]
    MemoryIdentityRejected {
        /// The caller, as far as it is known.
        #[serde(flatten)]
        who: Who,
        /// The method, for example `add_turn`.
        operation: &'static str,
        /// Which parts are missing, in fixed words: `tenant_id and user_id empty`.
        reason: String,
    },
    /// The health of a conversation changed, or it was said anew why it is what it is.
    #[serde(rename = "memory.health_changed")]
    MemoryHealthChanged {
        /// The owner of the conversation.
        #[serde(flatten)]
        who: Who,
        /// The health before: `healthy`, `retry`, `degraded` or `recovering`.
        prior: &'static str,
        /// The health now.
        new: &'static str,
        /// Why, in one fixed word.
        reason: &'static str,
    },
    /// Turns were dropped before they were summarised.
    #[serde(rename = "memory.recovery_dropped")]
    MemoryRecoveryDropped {
        /// The owner of the conversation.
        #[serde(flatten)]
        who: Who,
        /// Why, in one fixed word: `max_turns`, `max_bytes`, `summary_rebuilt`, `unreadable`.
        reason: &'static str,
        /// How many turns.
        count: u64,
    },
    /// A summary stayed over its limit, and its start was cut off.
    #[serde(rename = "memory.summary_cut")]
    MemorySummaryCut {
        /// The owner of the conversation.
        #[serde(flatten)]
        who: Who,
        /// The tokens of the whole summary.
        tokens: u64,
        /// The limit.
        limit: u64,
    },
    /// An administrator added a turn.
    #[serde(rename = "memory.item_put")]
    MemoryItemPut {
        /// The owner of the conversation.
        #[serde(flatten)]
        who: Who,
        /// The id of the turn.
        key: String,
    },
    /// An administrator deleted a turn.
    #[serde(rename = "memory.item_deleted")]
    MemoryItemDeleted {
        /// The owner of the conversation.
        #[serde(flatten)]
        who: Who,
        /// The id of the turn.
        key: String,
    },
}

impl EventKind {
    /// Returns the owner of the conversation that the event is about; `None` if it is about
    /// something else.
    #[must_use]
    pub const fn conversation(&self) -> Option<&Who> {
        match self {
            Self::MemoryIdentityRejected { who, .. }
            | Self::MemoryHealthChanged { who, .. }
            | Self::MemoryRecoveryDropped { who, .. }
            | Self::MemorySummaryCut { who, .. }
            | Self::MemoryItemPut { who, .. }
            | Self::MemoryItemDeleted { who, .. } => Some(who),
            Self::PackRegistered { .. }
            | Self::PackRemoved { .. }
            | Self::PackRefused { .. }
            | Self::CachePurged { .. } => None,
        }
    }
}

/// Owner of the conversation that an event is about.
///
/// Only an event that refuses an incomplete identity lacks members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Who {
    /// The tenant.
    pub tenant: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The conversation.
    pub session: Option<String>,
}
