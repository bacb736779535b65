//! A conversation as rows of the store, and the only module that knows them.
//!
//! All rows of a conversation are entries of kind `conversation` in the namespace (tenant, user, session):
//!
//! | key | holds |
//! |---|---|
//! | `~head` | [`Head`]: which turns there are. Every write to the conversation replaces it, expecting the version that it read |
//! | `~checkpoint` | [`Checkpoint`]: the summary and how it is doing |
//! | `turn/<20 digits>` | a turn, under its sequence number; written once, never replaced |
//! | `once/<name>` | the sequence number of the turn that was added under this name; ends after a day |
//!
//! The keys sort so that one descending scan gives head, checkpoint and the newest turns, all of one moment. Because each write
//! expects the head that it read, what is written by several processes comes into one order, sequence numbers have no
//! gap that could be filled later, and none is given twice. Only turns with `first <= seq <= seq of the head` are there;
//! others are remains of something that was cut off, and are swept.
//!
//! Generations, and the versions of head and checkpoint, start at random, so that those of a conversation that was forgotten and begun anew are never taken for
//! the former ones by somebody who still holds on to those.

pub(crate) mod form;
mod remains;
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
use crate::item::ItemId;
use crate::tokens::Counter;
use crate::turn::ConversationTurn;

pub(crate) use form::{Fresh, Once};
pub(crate) use write::{Ops, Replaced, lineage, random, staging};

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
    /// Begins at one of chance, and grows by one with each flush, restore and delete of a turn; 0 = the conversation is not there.
    pub(crate) generation: u64,
}

/// The summary, and how it is doing.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// That of the head when this was written by a flush, restore or delete; a summary of an older one is thrown away.
    pub(crate) generation: u64,
    /// The strategy under which the conversation was begun or restored.
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
    /// How many turns are in it that were dropped since; 0 if it was restored.
    #[serde(default)]
    pub(crate) gone: u64,
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

impl Head {
    /// Says whether a turn was deleted out of the middle.
    pub(crate) const fn has_holes(&self) -> bool {
        self.span() != self.turns
    }

    /// Returns how many sequence numbers there are from the first kept turn to the last one.
    const fn span(&self) -> u64 {
        (self.seq + 1).saturating_sub(self.first)
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("generation", &self.generation)
            .field("covers_through", &self.covers_through)
            .field("summary_bytes", &self.summary.len())
            .field("health", &self.health)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("head", &self.head).field("checkpoint", &self.checkpoint).finish_non_exhaustive()
    }
}

impl State {
    /// Says whether the conversation is there, and did not end: nothing was written to it for `ttl` (0 = it never ends).
    pub(crate) fn is_live(&self, now: Timestamp, ttl: Duration) -> bool {
        self.touched_at.is_some_and(|touched| ttl.is_zero() || now.since(touched) < ttl)
    }

    /// Says whether this is the conversation of `earlier`, and not one that was begun anew after that was forgotten: versions grow by
    /// one, and begin at one of chance.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        let steps = self.checkpoint_version.checked_sub(earlier.checkpoint_version);
        earlier.checkpoint_version != 0 && steps.is_some_and(|steps| steps < 1 << 32)
    }
}

/// What was read of a conversation, of one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    /// Head and checkpoint.
    pub(crate) state: State,
    /// The newest kept turns, oldest first.
    pub(crate) turns: Vec<Kept>,
    /// Every kept turn from this sequence number on is in `turns` or does not open.
    pub(crate) from: u64,
    /// How many of those do not open.
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
    pub(crate) fn new(store: Arc<dyn Store>, counter: Counter, kind: TokenCounter, clock: Arc<dyn Clock>) -> Self {
        Self { store, counter, kind, clock }
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
        let scan = self.store.scan(namespace, Kind::Conversation, form::STATE, Order::KeyDescending, 2).await?;
        let state = read_state(&scan.entries)?;
        if scan.unreadable > 0 {
            let what = if state.head_version == 0 { "head" } else { "checkpoint" };
            return Err(ConversationError::Corrupt(format!("its {what} does not open")));
        }
        Ok(state)
    }

    /// Reads head, checkpoint and about the newest `limit` turns, of one moment.
    ///
    /// # Errors
    /// `Corrupt` if head or checkpoint does not open; `Store`.
    pub(crate) async fn load(&self, namespace: &Namespace, limit: usize) -> Result<Loaded> {
        let limit = limit.saturating_add(2);
        let (scan, state) = loop {
            let scan = self.store.scan(namespace, Kind::Conversation, "", Order::KeyDescending, limit).await?;
            let state = read_state(&scan.entries)?;
            if state.head_version != 0 && (state.checkpoint_version != 0 || scan.unreadable == 0) {
                break (scan, state);
            }
            // Absent or damaged: the short scan tells.
            let short = self.state(namespace).await?;
            if short.head_version == 0 {
                return Ok(Loaded { from: short.head.first, state: short, ..Loaded::default() });
            }
            if (short.head_version, short.checkpoint_version) == (state.head_version, state.checkpoint_version) {
                // There is no checkpoint, and it is turns that do not open.
                break (scan, state);
            }
        };
        let (first, last) = (state.head.first, state.head.seq);
        let mut complete = (scan.entries.len() as u64).saturating_add(scan.unreadable) < limit as u64;
        let (mut turns, mut odd, mut remains) = (Vec::new(), scan.unreadable, false);
        let mut from = last + 1;
        for entry in &scan.entries {
            match form::seq_of(&entry.meta.key) {
                Some(seq) if seq > last => remains = true,
                Some(seq) if seq >= first => {
                    from = seq;
                    match form::read_turn(seq, entry, self.counter, self.kind) {
                        Some(kept) => turns.push(kept),
                        None => odd += 1,
                    }
                }
                // What sorts after the turns, or is older than the oldest: there are no more.
                _ => complete |= !entry.meta.key.starts_with(form::STATE),
            }
        }
        turns.reverse();
        if remains && !complete {
            // What a restore left behind fills the scan; it is swept some time.
            let from = (last + 1).saturating_sub(limit as u64).max(first);
            let (turns, unreadable) = self.turns(namespace, from, last, usize::MAX).await?;
            return Ok(Loaded { state, turns, from, unreadable });
        }
        if complete {
            from = first;
        }
        let unreadable = if odd == 0 {
            0
        } else {
            let there = self.keys(namespace, form::TURNS, from, last).await?.len();
            there.saturating_sub(turns.len()) as u64
        };
        Ok(Loaded { state, turns, from, unreadable })
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
        let (mut turns, mut unreadable) = (Vec::new(), 0);
        let mut seq = from;
        while seq <= through && turns.len() < limit {
            let wanted = (limit - turns.len()).min(usize::try_from(through - seq).unwrap_or(usize::MAX));
            let zeros = if wanted > 10 { 2 } else { 1 };
            let size = 10_u64.pow(zeros);
            let last = (seq - seq % size + size - 1).min(through);
            let prefix = form::block_prefix(seq, zeros as usize);
            let order = Order::KeyAscending;
            let scan = self.store.scan(namespace, Kind::Conversation, &prefix, order, size as usize).await?;
            let (mut odd, mut found, mut end) = (scan.unreadable, 0, last);
            for entry in &scan.entries {
                let Some(at) = form::seq_of(&entry.meta.key).filter(|at| (seq..=last).contains(at)) else { continue };
                match form::read_turn(at, entry, self.counter, self.kind) {
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
            let Some(next) = last.checked_add(1) else { break };
            seq = next;
        }
        Ok((turns, unreadable))
    }

    /// Returns the sequence numbers of the turns in a range whose keys start with `prefix`, in ascending order, whether they open or not.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn keys(&self, namespace: &Namespace, prefix: &str, from: u64, through: u64) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let mut after = None;
        // No more rows than there are in the blocks of the range.
        let common = form::common_prefix(from, through);
        let prefix = if common.starts_with(prefix) { &common } else { prefix };
        loop {
            let page = Page { limit: 1000, after };
            let page = self.store.list(namespace, Kind::Conversation, prefix, page).await?;
            let keys = page.entries.iter().filter_map(|meta| form::seq_of(&meta.key));
            found.extend(keys.filter(|seq| (from..=through).contains(seq)));
            after = page.next;
            if after.is_none() {
                found.sort_unstable();
                return Ok(found);
            }
        }
    }

    /// Returns what was added under a name, `None` if nothing was, or if that was more than a day ago.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn once(&self, namespace: &Namespace, name: &str) -> Result<Option<Once>> {
        let entry = self.store.get(namespace, Kind::Conversation, &form::once_key(name)).await?;
        Ok(entry.and_then(|entry| Once::read(&entry.value)))
    }
}

/// Takes head and checkpoint out of a scan; what is not there has version 0.
fn read_state(entries: &[Entry]) -> Result<State> {
    let mut state = State::default();
    for entry in entries.iter().take(2) {
        match entry.meta.key.as_str() {
            form::HEAD => {
                state.head = form::read("head", entry)?;
                state.head_version = entry.meta.version;
                state.touched_at = Some(entry.meta.updated_at);
            }
            form::CHECKPOINT => {
                state.checkpoint = form::read("checkpoint", entry)?;
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
    } else if state.head.first == 0 || state.head.first > state.head.seq.saturating_add(1) || state.head.seq == u64::MAX
    {
        return Err(ConversationError::Corrupt("its head makes no sense".to_owned()));
    }
    Ok(state)
}
