//! Keys and values of the rows of a conversation.

use std::sync::Arc;

use bytes::Bytes;
use helmdeck_memory::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoredTurn;
use crate::config::TokenCounter;
use crate::error::{ConversationError, Result};
use crate::tokens::Counter;
use crate::turn::ConversationTurn;
use crate::turn_id::TurnId;
use crate::wire;

pub(crate) const HEAD: &str = "~head";
pub(crate) const CHECKPOINT: &str = "~checkpoint";
/// Prefix of the keys of head and checkpoint only.
pub(crate) const STATE: &str = "~";
pub(crate) const TURNS: &str = "turn/";
pub(crate) const ONCE: &str = "once/";

/// Returns the key of a turn.
pub(crate) fn turn_key(seq: u64) -> String {
    format!("{TURNS}{seq:020}")
}

/// Returns the common key prefix of a block of `10^zeros` turns that contains `seq`.
pub(crate) fn block_prefix(seq: u64, zeros: usize) -> String {
    let mut key = turn_key(seq);
    key.truncate(key.len() - zeros);
    key
}

/// Returns the common key prefix of a range of turns.
pub(crate) fn common_prefix(from: u64, through: u64) -> String {
    let (mut key, last) = (turn_key(from), turn_key(through));
    key.truncate(
        key.bytes()
            .zip(last.bytes())
            .take_while(|(a, b)| a == b)
            .count(),
    );
    key
}

/// Returns key prefixes that match exactly the turns through `last`.
///
/// They are one more than the sum of its digits.
pub(crate) fn prefixes_through(last: u64) -> Vec<String> {
    let key = turn_key(last);
    let mut prefixes = Vec::new();
    for (place, digit) in key.char_indices().skip(TURNS.len()) {
        prefixes.extend(('0'..digit).map(|lower| format!("{}{lower}", &key[..place])));
    }
    prefixes.push(key);
    prefixes
}

/// Parses the sequence number in the key of a turn.
pub(crate) fn seq_of(key: &str) -> Option<u64> {
    key.strip_prefix(TURNS)
        .filter(|digits| digits.len() == 20)?
        .parse()
        .ok()
}

/// Returns the key of an idempotency row.
pub(crate) fn once_key(name: &str) -> String {
    format!("{ONCE}{name}")
}

/// A turn ready to be written.
#[derive(Clone)]
pub(crate) struct EncodedTurn {
    pub(crate) turn: Arc<ConversationTurn>,
    /// Its tokens, by the configured counter.
    pub(crate) tokens: u64,
    pub(crate) json: Bytes,
}

helmdeck_core::redacted_debug!(EncodedTurn, this => tokens = this.tokens, bytes = this.json.len());

impl EncodedTurn {
    /// Returns the value of the turn's row: a line `<nonce> <counter> <tokens>`, then its JSON.
    pub(crate) fn value(&self, id: TurnId, counter: TokenCounter) -> Bytes {
        let mut value =
            format!("{:08x} {} {}\n", id.nonce, letter(counter), self.tokens).into_bytes();
        value.extend_from_slice(&self.json);
        value.into()
    }

    /// Returns the length of that value, which is the same for every id.
    pub(crate) fn value_bytes(&self, counter: TokenCounter) -> u64 {
        self.value(TurnId { seq: 0, nonce: 0 }, counter).len() as u64
    }
}

/// Parses a turn; `None` if the row is malformed.
pub(crate) fn read_turn(
    seq: u64,
    entry: &Entry,
    counter: Counter,
    kind: TokenCounter,
) -> Option<StoredTurn> {
    let end = entry.value.iter().position(|byte| *byte == b'\n')?;
    let mut words = std::str::from_utf8(&entry.value[..end]).ok()?.split(' ');
    let nonce = u32::from_str_radix(words.next()?, 16).ok()?;
    let counted = words.next()?;
    let tokens = words.next()?.parse().ok()?;
    let turn = wire::read_turn(&entry.value[end + 1..]).ok()?;
    // It was written with another counter.
    let tokens = if counted == letter(kind) {
        tokens
    } else {
        counter.turn(&turn)
    };
    Some(StoredTurn {
        id: TurnId { seq, nonce },
        tokens,
        bytes: entry.value.len() as u64,
        created_at: entry.meta.created_at,
        turn: Arc::new(turn),
    })
}

/// Returns the name of a token counter and its version. Rows of another one are counted again.
const fn letter(counter: TokenCounter) -> &'static str {
    match counter {
        TokenCounter::Chars => "c2",
        TokenCounter::Cl100kBase => "k2",
        TokenCounter::O200kBase => "o2",
    }
}

/// Value of an idempotency row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Once {
    pub(crate) id: TurnId,
    pub(crate) tokens: u64,
    /// Digest of the turn; empty = unknown.
    pub(crate) digest: String,
}

impl Once {
    /// Encodes it.
    pub(crate) fn value(&self) -> Bytes {
        format!("{} {} {}", self.id, self.tokens, self.digest)
            .into_bytes()
            .into()
    }

    /// Decodes it.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let (id, tokens) = (TurnId::parse(words.next()?)?, words.next()?.parse().ok()?);
        Some(Self {
            id,
            tokens,
            digest: words.next().unwrap_or_default().to_owned(),
        })
    }
}

/// Encodes a head or a checkpoint.
pub(crate) fn write<T: Serialize>(value: &T) -> Result<Bytes> {
    serde_json::to_vec(value)
        .map(Into::into)
        .map_err(|error| ConversationError::Corrupt(error.to_string()))
}

/// Decodes a head or a checkpoint; `what` names it in the error.
pub(crate) fn read<T: DeserializeOwned>(what: &'static str, entry: &Entry) -> Result<T> {
    // The parser's message may repeat a part of a summary.
    serde_json::from_slice(&entry.value)
        .map_err(|_| ConversationError::Corrupt(format!("its {what} makes no sense")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_numbers_up_to_limit() {
        for last in [0, 7, 9, 10, 99, 100, 1234, u64::MAX] {
            let prefixes = prefixes_through(last);
            let hits = |seq: u64| {
                prefixes
                    .iter()
                    .filter(|prefix| turn_key(seq).starts_with(prefix.as_str()))
                    .count()
            };
            for seq in [0, last / 10, last / 3, last.saturating_sub(1), last] {
                assert_eq!(hits(seq), 1, "{seq} of {last}");
            }
            for seq in [
                last.saturating_add(1),
                last.saturating_add(9),
                last.saturating_mul(10).saturating_add(1),
            ] {
                assert_eq!(hits(seq), usize::from(seq <= last), "{seq} over {last}");
            }
        }
    }

    #[test]
    fn a_block_has_the_keys_of_its_turns() {
        assert_eq!(block_prefix(1234, 2), "turn/000000000000000012");
        assert_eq!(block_prefix(1234, 0), turn_key(1234));
        assert_eq!(seq_of(&turn_key(1234)), Some(1234));
        assert_eq!(common_prefix(1234, 1267), block_prefix(1234, 2));
        assert_eq!(
            (common_prefix(0, u64::MAX), common_prefix(7, 7)),
            (TURNS.to_owned(), turn_key(7))
        );
        for odd in [
            "turn/12",
            "~head",
            "turn/0000000000000000001x",
            "turn/99999999999999999999",
        ] {
            assert_eq!(seq_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_is_remembered_of_a_name_reads_back() {
        let once = Once {
            id: TurnId::new(7),
            tokens: 42,
            digest: "ab".to_owned(),
        };
        assert_eq!(Once::read(&once.value()), Some(once.clone()));
        let before = Once {
            digest: String::new(),
            ..once
        };
        assert_eq!(
            Once::read(format!("{} 42", before.id).as_bytes()),
            Some(before)
        );
        assert_eq!(Once::read(b"nonsense"), None);
    }
}
