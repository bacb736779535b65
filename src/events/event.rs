//! The event types. An event names things; it never carries an input, an output or a secret.

use helmdeck_core::{PackName, Timestamp, Version};
use serde::Serialize;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its place in the order of this bus, from 1, without gaps.
    pub sequence: u64,
    /// When it happened.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
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
    /// A pack is no longer there.
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
        /// Why, with its place.
        reason: String,
    },
    /// Cached answers were dropped.
    CachePurged {
        /// What was purged, in words (`tag github:a/b`).
        what: String,
        /// How many stored rows went.
        rows: u64,
    },
}
