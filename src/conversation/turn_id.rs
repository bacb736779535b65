//! Ids of turns.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a turn: `mem_`, 16 hex digits of its sequence number, and 8 random ones.
///
/// The random part keeps the id of a forgotten turn from naming another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId {
    /// Sequence number of the turn in its conversation.
    pub(crate) seq: u64,
    /// Random part.
    pub(crate) nonce: u32,
}

impl TurnId {
    /// Makes the id of a new turn.
    pub(crate) fn new(seq: u64) -> Self {
        let random = uuid::Uuid::now_v7().into_bytes();
        Self {
            seq,
            nonce: u32::from_be_bytes([random[12], random[13], random[14], random[15]]),
        }
    }

    /// Parses an id; `None` if the text isn't one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text
            .strip_prefix("mem_")
            .filter(|digits| digits.len() == 24)?;
        if !digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        {
            return None;
        }
        let (seq, nonce) = digits.split_at(16);
        Some(Self {
            seq: u64::from_str_radix(seq, 16).ok()?,
            nonce: u32::from_str_radix(nonce, 16).ok()?,
        })
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mem_{:016x}{:08x}", self.seq, self.nonce)
    }
}

impl Serialize for TurnId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TurnId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not the id of a turn"))
    }
}
