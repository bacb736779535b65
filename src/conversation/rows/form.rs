//! How the rows of a dialogue are named and written.

use std::sync::Arc;

use bytes::Bytes;
use helmdeck_memory::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Kept;
use crate::config::TokenCounter;
use crate::error::{ConversationError, Result};
use crate::item::ItemId;
use crate::tokens::Counter;
use crate::turn::ConversationTurn;
use crate::wire;

pub(crate) const HEAD: &str = "~head";
pub(crate) const CHECKPOINT: &str = "~checkpoint";
/// What the keys of head and checkpoint start with, and no other.
pub(crate) const STATE: &str = "~";
pub(crate) const TURNS: &str = "turn/";
pub(crate) const ONCE: &str = "once/";

/// Returns the key of a turn.
pub(crate) fn turn_key(seq: u64) -> String {
    format!("{TURNS}{seq:020}")
}

/// Returns what the keys of a block of `10^zeros` turns start with; `seq` is one of them.
pub(crate) fn block_prefix(seq: u64, zeros: usize) -> String {
    let mut key = turn_key(seq);
    key.truncate(key.len() - zeros);
    key
}

/// Returns the sequence number that a key names, `None` if it is not that of a turn.
pub(crate) fn seq_of(key: &str) -> Option<u64> {
    key.strip_prefix(TURNS).filter(|digits| digits.len() == 20)?.parse().ok()
}

/// Returns the key that remembers a name given by a caller.
pub(crate) fn once_key(name: &str) -> String {
    format!("{ONCE}{name}")
}

/// A turn on its way into a row.
#[derive(Debug, Clone)]
pub(crate) struct Fresh {
    /// The turn.
    pub(crate) turn: Arc<ConversationTurn>,
    /// Its tokens, by the configured counter.
    pub(crate) tokens: u64,
    /// Its JSON.
    pub(crate) json: Vec<u8>,
}

impl Fresh {
    /// Returns the value of the row that keeps the turn under an id: a line of `<chance> <counter> <tokens>`, then its JSON.
    pub(crate) fn value(&self, id: ItemId, counter: TokenCounter) -> Bytes {
        let mut value = format!("{:08x} {} {}\n", id.nonce, letter(counter), self.tokens).into_bytes();
        value.extend_from_slice(&self.json);
        value.into()
    }
}

/// Reads a turn, `None` if the row makes no sense.
pub(crate) fn read_turn(seq: u64, entry: &Entry, counter: Counter, kind: TokenCounter) -> Option<Kept> {
    let end = entry.value.iter().position(|byte| *byte == b'\n')?;
    let mut words = std::str::from_utf8(&entry.value[..end]).ok()?.split(' ');
    let nonce = u32::from_str_radix(words.next()?, 16).ok()?;
    let counted = words.next()?;
    let tokens = words.next()?.parse().ok()?;
    let turn = wire::read_turn(&entry.value[end + 1..]).ok()?;
    // Another counter was configured when it was written.
    let tokens = if counted == letter(kind) { tokens } else { counter.turn(&turn) };
    Some(Kept {
        id: ItemId { seq, nonce },
        tokens,
        bytes: entry.value.len() as u64,
        created_at: entry.meta.created_at,
        turn: Arc::new(turn),
    })
}

const fn letter(counter: TokenCounter) -> &'static str {
    match counter {
        TokenCounter::Chars => "c",
        TokenCounter::Cl100kBase => "k",
        TokenCounter::O200kBase => "o",
    }
}

/// Writes what a row remembers of an added turn: its id and its tokens.
pub(crate) fn write_once(id: ItemId, tokens: u64) -> Bytes {
    format!("{id} {tokens}").into_bytes().into()
}

/// Reads it back.
pub(crate) fn read_once(value: &[u8]) -> Option<(ItemId, u64)> {
    let (id, tokens) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((ItemId::parse(id)?, tokens.parse().ok()?))
}

/// Writes a head or a checkpoint.
pub(crate) fn write<T: Serialize>(value: &T) -> Result<Bytes> {
    serde_json::to_vec(value).map(Into::into).map_err(|error| ConversationError::Corrupt(error.to_string()))
}

/// Reads a head or a checkpoint; `what` says in the error which.
pub(crate) fn read<T: DeserializeOwned>(what: &'static str, entry: &Entry) -> Result<T> {
    // What the parser says may repeat a part of a summary.
    serde_json::from_slice(&entry.value).map_err(|_| ConversationError::Corrupt(format!("its {what} makes no sense")))
}
