//! Turns as an administrator sees them: one item a turn, with an id that never changes.

use std::fmt;
use std::sync::Arc;

use helmdeck_core::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize};

use crate::config::Strategy;
use crate::health::Health;
use crate::turn::ConversationTurn;
use crate::wire::DoorTurn;

/// The id of a turn: `mem_`, 16 hex digits of its place in the conversation, and 8 of chance, so that the id of a turn that was
/// forgotten is never that of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId {
    /// The place: the sequence number of the turn.
    pub(crate) seq: u64,
    /// Chance.
    pub(crate) nonce: u32,
}

impl ItemId {
    /// Makes the id of a new turn.
    pub(crate) fn new(seq: u64) -> Self {
        let random = uuid::Uuid::now_v7().into_bytes();
        Self { seq, nonce: u32::from_be_bytes([random[12], random[13], random[14], random[15]]) }
    }

    /// Reads an id. Whoever sends another text names no turn.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("mem_").filter(|digits| digits.len() == 24)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            return None;
        }
        let (seq, nonce) = digits.split_at(16);
        Some(Self { seq: u64::from_str_radix(seq, 16).ok()?, nonce: u32::from_str_radix(nonce, 16).ok()? })
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mem_{:016x}{:08x}", self.seq, self.nonce)
    }
}

impl Serialize for ItemId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ItemId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not the id of a turn"))
    }
}

/// What was added.
///
/// `Serialize` gives `{id, key, tokens, repeated}`: `key` is the word of lists and of `show`, `id` stands for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// The id of the turn; `None` = the strategy `none` keeps nothing.
    pub id: Option<ItemId>,
    /// Its tokens.
    pub tokens: u64,
    /// Whether this turn was there already, under the same `once`.
    pub repeated: bool,
}

impl Serialize for Added {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut form = serializer.serialize_struct("Added", 4)?;
        form.serialize_field("id", &self.id)?;
        form.serialize_field("key", &self.id)?;
        form.serialize_field("tokens", &self.tokens)?;
        form.serialize_field("repeated", &self.repeated)?;
        form.end()
    }
}

/// A turn as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Its id.
    pub key: ItemId,
    /// The strategy of the conversation.
    pub strategy: Strategy,
    /// When the turn happened, as its writer says: RFC 3339.
    pub timestamp: String,
    /// When it was stored.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub created_at: Timestamp,
    /// The bytes of its value.
    pub size_bytes: u64,
    /// Its tokens.
    pub tokens: u64,
    /// Whether it is in the summary.
    pub folded: bool,
    /// The turn with its texts, in the form of [`ItemDetail::turn`]; only in lists, and only if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "value")]
    pub value: Option<Arc<ConversationTurn>>,
}

fn value<S: serde::Serializer>(turn: &Option<Arc<ConversationTurn>>, serializer: S) -> Result<S::Ok, S::Error> {
    turn.as_deref().map(|turn| DoorTurn { id: None, turn }).serialize(serializer)
}

/// A turn with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemDetail {
    /// Everything but the text.
    pub item: Item,
    /// The turn. The transports write it with the keys `user_message`, `assistant_response`, `timestamp`, `trajectory_digest?`,
    /// `artifacts_shown?`, `artifacts_hidden_refs?`; see [`crate::wire`].
    pub turn: Arc<ConversationTurn>,
}

/// Which items are wanted.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ItemFilter {
    /// Only turns whose texts hold this, whatever the case.
    pub content_search: Option<String>,
    /// Only turns that are (`true`) or are not (`false`) in the summary.
    pub folded: Option<bool>,
    /// Whether the texts are wanted too. A page of them ends early, before what is listed has more than 1 MiB.
    pub with_texts: bool,
    /// 1 to 200; 50 unless given.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<ItemId>,
}

// What is looked for is what somebody said.
impl fmt::Debug for ItemFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemFilter")
            .field("content_search_bytes", &self.content_search.as_ref().map(String::len))
            .field("folded", &self.folded)
            .field("limit", &self.limit)
            .field("after", &self.after)
            .finish()
    }
}

/// A page of items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ItemPage {
    /// The items, newest first.
    pub items: Vec<Item>,
    /// All turns that are kept of the conversation.
    pub total: u64,
    /// The `after` of the next page; `None` = this was the last.
    pub next: Option<ItemId>,
    /// How many turns of this page do not open and are left out.
    pub unreadable: u64,
}

/// What became of a deleted turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// Always true: an unknown turn is an error.
    pub deleted: bool,
    /// How many turns are left.
    pub remaining_turns: u64,
    /// Whether the turn was in the summary, which is now made anew from the turns that are kept.
    pub summary_rebuilt: bool,
}

/// What a strategy makes of a conversation right now.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// The strategy.
    pub strategy: Strategy,
    /// The summary.
    pub summary: String,
    /// How many turns are in sight.
    pub recent_turn_count: u64,
    /// The tokens of the context.
    pub estimated_tokens: u64,
    /// The health.
    pub health: Health,
    /// How many turns are kept.
    pub kept_turns: u64,
    /// The bytes that they take.
    pub kept_bytes: u64,
    /// How many turns wait for the summary.
    pub backlog_turns: u64,
    /// How many turns the budget leaves out.
    pub omitted_turns: u64,
    /// Up to which turn the summary reaches; 0 = there is none.
    pub covers_through: u64,
    /// Grows by one with each flush, restore and delete of a turn. It begins at a number of chance below 2^52, another one each time that
    /// the conversation is begun anew after it was forgotten; 0 = the conversation is not there.
    pub generation: u64,
    /// How often the summarizer failed in a row.
    pub failures: u32,
    /// Why it failed last, in one fixed word; `None` = it did not.
    pub last_failure: Option<String>,
}

impl Trace {
    /// Says what the strategy `none` makes of any conversation.
    pub(crate) const fn nothing() -> Self {
        Self {
            strategy: Strategy::None,
            summary: String::new(),
            recent_turn_count: 0,
            estimated_tokens: 0,
            health: Health::Healthy,
            kept_turns: 0,
            kept_bytes: 0,
            backlog_turns: 0,
            omitted_turns: 0,
            covers_through: 0,
            generation: 0,
            failures: 0,
            last_failure: None,
        }
    }
}

// What people said: no log shows it by accident.
impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("strategy", &self.strategy)
            .field("summary_bytes", &self.summary.len())
            .field("recent_turn_count", &self.recent_turn_count)
            .field("estimated_tokens", &self.estimated_tokens)
            .field("health", &self.health)
            .field("kept_turns", &self.kept_turns)
            .field("kept_bytes", &self.kept_bytes)
            .field("backlog_turns", &self.backlog_turns)
            .field("omitted_turns", &self.omitted_turns)
            .field("covers_through", &self.covers_through)
            .field("generation", &self.generation)
            .field("failures", &self.failures)
            .field("last_failure", &self.last_failure)
            .finish()
    }
}

/// How folding is doing, in the form of every transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Folding {
    /// The health.
    pub health: Health,
    /// How many turns wait for the summary.
    pub backlog_turns: u64,
    /// How often the summarizer failed in a row.
    pub failures: u32,
    /// Why it failed last, in one fixed word; `None` = it did not.
    pub last_failure: Option<String>,
}

impl From<Trace> for Folding {
    fn from(trace: Trace) -> Self {
        let Trace { health, backlog_turns, failures, last_failure, .. } = trace;
        Self { health, backlog_turns, failures, last_failure }
    }
}

/// Whose conversations are wanted.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this user.
    pub user: Option<String>,
    /// 1 to 200; 50 unless given.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    /// The tenant.
    pub tenant: String,
    /// The user.
    pub user: String,
    /// The conversation.
    pub session: String,
    /// How many turns are kept.
    pub turns: u64,
    /// The bytes that they take.
    pub bytes: u64,
    /// When something was last added, or changed.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub updated_at: Timestamp,
    /// When it ends if nothing is added; `None` = never.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "end")]
    pub expires_at: Option<Timestamp>,
    /// Its health.
    pub health: Health,
}

fn end<S: serde::Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(Timestamp::to_rfc3339).serialize(serializer)
}

/// A page of conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SessionPage {
    /// The conversations, by tenant, user and name.
    pub sessions: Vec<Session>,
    /// All conversations that fit the filter. If there are more than 500, those that have ended and were not swept yet count too.
    pub total: u64,
    /// Of all that fit, or of this page if there are more than 500: those that end within an hour if nothing is added.
    pub expiring_in_1h: u64,
    /// How often an identity was refused in the last 24 hours, by this process.
    pub identity_rejected_24h: u64,
    /// How many turns were dropped unsummarised in the last 24 hours, by this process.
    pub recovery_dropped_24h: u64,
    /// The `after` of the next page; `None` = this was the last.
    pub next: Option<String>,
}
