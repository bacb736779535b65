//! Rows of conversations; no other module knows them.
//!
//! All rows of a conversation are entries of kind `conversation` in the namespace (tenant, user,
//! conversation id):
//!
//! | key | holds |
//! |---|---|
//! | `~head` | [`Head`]: the range of stored turns. Every write replaces it, expecting the version that it read |
//! | `~checkpoint` | [`Checkpoint`]: the summary and its health |
//! | `turn/<20 digits>` | a turn, by its sequence number; written once, never replaced |
//! | `once/<name>` | the id of the turn that was added with this idempotency key; expires after a day |
//!
//! The keys sort so that one descending scan reads head, checkpoint and the newest turns of one
//! moment. Each write expects the head that it read. So the writes of several processes are in one
//! order, and sequence numbers are neither reused nor filled in later. Turns outside `first..=seq`
//! of the head are orphans of an interrupted write; they are swept.
//!
//! Generations, and the versions of head and checkpoint, start at random numbers. So a process that
//! still caches a forgotten conversation never takes its successor for it.

pub(crate) mod encoding;
mod orphans;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, Json, Timestamp};
use helmdeck_memory::{Entry, Kind, Namespace, Order, Page, Store};
use serde::{Deserialize, Serialize};

use crate::config::{Strategy, TokenCounter};
use crate::error::{ConversationError, Result};
use crate::health::Health;
use crate::render::FRAME_TOKENS;
use crate::summarizer::Failure;
use crate::tokens::Counter;
use crate::turn::ConversationTurn;
use crate::turn_id::TurnId;

pub(crate) use encoding::{EncodedTurn, Once};
pub(crate) use write::{Ops, Replaced, new_generation, staging};

/// The range of stored turns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Sequence number of the newest turn ever added; 0 = none. It never decreases.
    pub(crate) seq: u64,
    /// Sequence number of the oldest stored turn; `seq + 1` if no turn is stored.
    pub(crate) first: u64,
    /// Number of stored turns; less than `seq - first + 1` after deletes.
    pub(crate) turns: u64,
    /// Bytes of their values, before sealing.
    pub(crate) bytes: u64,
    /// Generation of the conversation. 0 = the conversation doesn't exist.
    ///
    /// Starts at random; grows by one with each flush, restore and delete of a turn.
    pub(crate) generation: u64,
}

/// The summary and its health.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Generation of the last flush, restore or delete. A summary of an older one is discarded.
    pub(crate) generation: u64,
    /// Strategy of the conversation when it started or was restored.
    pub(crate) strategy: Strategy,
    /// Sequence number of the last turn in the summary; 0 = there is no summary.
    pub(crate) covers_through: u64,
    /// The summary of all turns through `covers_through`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) summary: String,
    /// The part of the summary that can't be rebuilt from stored turns.
    ///
    /// It is a restored summary, or one whose turns were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Base>,
    /// The start of the user's first message that is more than a greeting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) opening: Option<String>,
    /// The goal that was pinned in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pinned: Option<String>,
    /// Whether the summary was longer than its limit, and lacks its oldest part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) summary_cut: bool,
    pub(crate) health: Health,
    /// Consecutive failures of the summarizer.
    #[serde(default)]
    pub(crate) failures: u32,
    /// Reason of the last failure, in one fixed word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<String>,
    /// Unknown members of a restored snapshot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) other: BTreeMap<String, Json>,
}

/// A summary without stored turns behind it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) summary: String,
    /// Sequence number of its last turn.
    pub(crate) through: u64,
    /// Number of its turns that were dropped since; 0 if it was restored.
    #[serde(default)]
    pub(crate) gone: u64,
}

/// A turn read from its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredTurn {
    /// Its id, with its sequence number.
    pub(crate) id: TurnId,
    /// Its tokens, by the configured counter.
    pub(crate) tokens: u64,
    /// Bytes of its value, before sealing.
    pub(crate) bytes: u64,
    /// When it was stored.
    pub(crate) created_at: Timestamp,
    pub(crate) turn: Arc<ConversationTurn>,
}

impl StoredTurn {
    /// Returns the tokens that the turn takes in the largest format, at most.
    ///
    /// What its row has beside the two texts is counted with two bytes for a token.
    pub(crate) fn room(&self) -> u64 {
        let texts = (self.turn.user_message.len() + self.turn.assistant_response.len()) as u64;
        self.tokens
            .saturating_add(self.bytes.saturating_sub(texts) / 2)
    }
}

/// Head and checkpoint of one moment, with the versions to expect (0 = the row doesn't exist).
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct StoredState {
    pub(crate) head: Head,
    pub(crate) head_version: u64,
    /// Time of the last write of the head; `None` without a head.
    pub(crate) touched_at: Option<Timestamp>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) checkpoint_version: u64,
}

impl Checkpoint {
    /// Returns the goal: the pinned one, or else the opening.
    pub(crate) fn goal(&self) -> Option<&str> {
        self.pinned.as_deref().or(self.opening.as_deref())
    }

    /// Returns whether an attempt is due though no turn may wait: one that ends the recovery.
    pub(crate) fn recovers(&self) -> bool {
        // After a summary that was cut, only the next one makes a difference.
        let is_cut = || self.last_failure.as_deref() == Some(Failure::OverLimit.as_str());
        self.health == Health::Recovering || (self.health == Health::Degraded && !is_cut())
    }

    /// Returns the tokens of a context without turns.
    pub(crate) fn fixed(&self, counter: Counter) -> u64 {
        counter.count(&self.summary)
            + self.goal().map_or(0, |goal| counter.count(goal))
            + FRAME_TOKENS
    }
}

impl Head {
    /// Returns whether a turn was deleted from the middle.
    pub(crate) const fn has_holes(&self) -> bool {
        self.span() != self.turns
    }

    /// Returns the length of the range.
    const fn span(&self) -> u64 {
        (self.seq + 1).saturating_sub(self.first)
    }
}

helmdeck_core::redacted_debug!(Checkpoint, this => generation = this.generation, covers_through = this.covers_through,
    summary_bytes = this.summary.len(), health = this.health, failures = this.failures);
helmdeck_core::redacted_debug!(StoredState, this => head = this.head, checkpoint = this.checkpoint);

impl StoredState {
    /// Returns whether the conversation exists and has not expired.
    ///
    /// It expires when `ttl` has passed since the last write (0 = never).
    pub(crate) fn is_live(&self, now: Timestamp, ttl: Duration) -> bool {
        self.touched_at
            .is_some_and(|touched| ttl.is_zero() || now.since(touched) < ttl)
    }

    /// Returns whether this is the same conversation as `earlier`.
    ///
    /// A conversation that was started after `earlier` was forgotten is another one: versions grow
    /// by one, and start at random.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        let steps = self
            .checkpoint_version
            .checked_sub(earlier.checkpoint_version);
        earlier.checkpoint_version != 0 && steps.is_some_and(|steps| steps < 1 << 32)
    }
}

/// Result of a read, of one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    pub(crate) state: StoredState,
    /// The newest stored turns, oldest first.
    pub(crate) turns: Vec<StoredTurn>,
    /// Every stored turn from this sequence number on is in `turns` or unreadable.
    pub(crate) from: u64,
    /// Number of unreadable turns among those.
    pub(crate) unreadable: u64,
}

/// The rows of conversations.
#[derive(Clone)]
pub(crate) struct Rows {
    store: Arc<dyn Store>,
    counter: Counter,
    kind: TokenCounter,
    clock: Arc<dyn Clock>,
}

impl Rows {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        counter: Counter,
        kind: TokenCounter,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            counter,
            kind,
            clock,
        }
    }

    /// Returns the store, for locks and lists of namespaces.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Reads head and checkpoint.
    ///
    /// # Errors
    /// `Corrupt` if one of them is unreadable; `Store`.
    pub(crate) async fn state(&self, namespace: &Namespace) -> Result<StoredState> {
        let scan = self
            .store
            .scan(
                namespace,
                Kind::Conversation,
                encoding::STATE,
                Order::KeyDescending,
                2,
            )
            .await?;
        let state = read_state(&scan.entries)?;
        if scan.unreadable > 0 {
            let what = if state.head_version == 0 {
                "head"
            } else {
                "checkpoint"
            };
            return Err(ConversationError::Corrupt(format!(
                "its {what} does not open"
            )));
        }
        Ok(state)
    }

    /// Reads head, checkpoint and about the newest `limit` turns, of one moment.
    ///
    /// # Errors
    /// `Corrupt` if head or checkpoint is unreadable; `Store`.
    pub(crate) async fn load(&self, namespace: &Namespace, limit: usize) -> Result<Loaded> {
        let limit = limit.saturating_add(2);
        let (scan, state) = loop {
            let scan = self
                .store
                .scan(
                    namespace,
                    Kind::Conversation,
                    "",
                    Order::KeyDescending,
                    limit,
                )
                .await?;
            let state = read_state(&scan.entries)?;
            if state.head_version != 0 && (state.checkpoint_version != 0 || scan.unreadable == 0) {
                break (scan, state);
            }
            // Absent or damaged: the short scan shows which.
            let short = self.state(namespace).await?;
            if short.head_version == 0 {
                return Ok(Loaded {
                    from: short.head.first,
                    state: short,
                    ..Loaded::default()
                });
            }
            if (short.head_version, short.checkpoint_version)
                == (state.head_version, state.checkpoint_version)
            {
                // There is no checkpoint; the unreadable rows are turns.
                break (scan, state);
            }
        };
        let (first, last) = (state.head.first, state.head.seq);
        let mut complete =
            (scan.entries.len() as u64).saturating_add(scan.unreadable) < limit as u64;
        let (mut turns, mut odd, mut orphans) = (Vec::new(), scan.unreadable, false);
        let mut from = last + 1;
        for entry in &scan.entries {
            match encoding::seq_of(&entry.meta.key) {
                Some(seq) if seq > last => orphans = true,
                Some(seq) if seq >= first => {
                    from = seq;
                    match encoding::read_turn(seq, entry, self.counter, self.kind) {
                        Some(kept) => turns.push(kept),
                        None => odd += 1,
                    }
                }
                // A row after the turns, or a turn older than the oldest: the scan is complete.
                _ => complete |= !entry.meta.key.starts_with(encoding::STATE),
            }
        }
        turns.reverse();
        if orphans && !complete {
            // Orphans of a restore fill the scan; the sweep removes them later.
            let from = (last + 1).saturating_sub(limit as u64).max(first);
            let (turns, unreadable) = self.turns(namespace, from, last, usize::MAX).await?;
            return Ok(Loaded {
                state,
                turns,
                from,
                unreadable,
            });
        }
        if complete {
            from = first;
        }
        let unreadable = if odd == 0 {
            0
        } else {
            let there = self
                .keys(namespace, encoding::TURNS, from, last)
                .await?
                .len();
            there.saturating_sub(turns.len()) as u64
        };
        Ok(Loaded {
            state,
            turns,
            from,
            unreadable,
        })
    }

    /// Reads up to `limit` stored turns of a range, oldest first, and counts the unreadable ones.
    pub(crate) async fn turns(
        &self,
        namespace: &Namespace,
        from: u64,
        through: u64,
        limit: usize,
    ) -> Result<(Vec<StoredTurn>, u64)> {
        let (mut turns, mut unreadable) = (Vec::new(), 0);
        let mut seq = from;
        while seq <= through && turns.len() < limit {
            let wanted =
                (limit - turns.len()).min(usize::try_from(through - seq).unwrap_or(usize::MAX));
            let zeros = if wanted > 10 { 2 } else { 1 };
            let size = 10_u64.pow(zeros);
            let last = (seq - seq % size + size - 1).min(through);
            let prefix = encoding::block_prefix(seq, zeros as usize);
            let order = Order::KeyAscending;
            let scan = self
                .store
                .scan(namespace, Kind::Conversation, &prefix, order, size as usize)
                .await?;
            let (mut odd, mut found, mut end) = (scan.unreadable, 0, last);
            for entry in &scan.entries {
                let Some(at) =
                    encoding::seq_of(&entry.meta.key).filter(|at| (seq..=last).contains(at))
                else {
                    continue;
                };
                match encoding::read_turn(at, entry, self.counter, self.kind) {
                    Some(kept) => {
                        turns.push(kept);
                        found += 1;
                    }
                    None => odd += 1,
                }
                if turns.len() == limit {
                    end = at;
                    break;
                }
            }
            if odd > 0 {
                let there = self.keys(namespace, &prefix, seq, end).await?.len() as u64;
                unreadable += there.saturating_sub(found);
            }
            let Some(next) = last.checked_add(1) else {
                break;
            };
            seq = next;
        }
        Ok((turns, unreadable))
    }

    /// Returns the sequence numbers of the stored turns of a range, readable or not, in ascending
    /// order.
    pub(crate) async fn keys(
        &self,
        namespace: &Namespace,
        prefix: &str,
        from: u64,
        through: u64,
    ) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let mut after = None;
        // Reads only the rows of the range's blocks.
        let common = encoding::common_prefix(from, through);
        let prefix = if common.starts_with(prefix) {
            &common
        } else {
            prefix
        };
        loop {
            let page = Page { limit: 1000, after };
            let page = self
                .store
                .list(namespace, Kind::Conversation, prefix, page)
                .await?;
            let keys = page
                .entries
                .iter()
                .filter_map(|meta| encoding::seq_of(&meta.key));
            found.extend(keys.filter(|seq| (from..=through).contains(seq)));
            after = page.next;
            if after.is_none() {
                found.sort_unstable();
                return Ok(found);
            }
        }
    }

    /// Returns the turn that was added with an idempotency key within the last day.
    pub(crate) async fn once(&self, namespace: &Namespace, name: &str) -> Result<Option<Once>> {
        let entry = self
            .store
            .get(namespace, Kind::Conversation, &encoding::once_key(name))
            .await?;
        Ok(entry.and_then(|entry| Once::read(&entry.value)))
    }
}

/// Parses head and checkpoint from a scan; absent ones have version 0.
fn read_state(entries: &[Entry]) -> Result<StoredState> {
    let mut state = StoredState::default();
    for entry in entries.iter().take(2) {
        match entry.meta.key.as_str() {
            encoding::HEAD => {
                state.head = encoding::read("head", entry)?;
                state.head_version = entry.meta.version;
                state.touched_at = Some(entry.meta.updated_at);
            }
            encoding::CHECKPOINT => {
                state.checkpoint = encoding::read("checkpoint", entry)?;
                state.checkpoint_version = entry.meta.version;
            }
            _ => break,
        }
    }
    if state.checkpoint_version == 0 {
        state.checkpoint.generation = state.head.generation;
    }
    if state.head_version == 0 {
        state.head.first = state.head.seq + 1;
    } else if state.head.first == 0
        || state.head.first > state.head.seq.saturating_add(1)
        || state.head.seq == u64::MAX
    {
        return Err(ConversationError::Corrupt(
            "its head makes no sense".to_owned(),
        ));
    }
    Ok(state)
}
