//! Arguments and results of the conversation memory, in the JSON form of the transports.

use std::sync::Arc;

use helmdeck_core::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::config::Strategy;
use crate::health::Health;
use crate::rows::Checkpoint;
use crate::turn::ConversationTurn;
use crate::turn_id::TurnId;
use crate::wire::TransportTurn;

/// Result of adding a turn.
///
/// Its JSON is `{id, key, tokens, repeated}`. `key`, the word of lists and of `show`, is the id
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// The id of the turn; `None` = the strategy `none` stores nothing.
    pub id: Option<TurnId>,
    /// Its tokens.
    pub tokens: u64,
    /// Whether the turn was stored before, under the same `once`.
    pub repeated: bool,
}

impl Serialize for Added {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Added", 4)?;
        object.serialize_field("id", &self.id)?;
        object.serialize_field("key", &self.id)?;
        object.serialize_field("tokens", &self.tokens)?;
        object.serialize_field("repeated", &self.repeated)?;
        object.end()
    }
}

/// A turn in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnInfo {
    /// Its id.
    pub key: TurnId,
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
    /// The turn with its texts, in the form of [`TurnDetail::turn`].
    ///
    /// Present only in lists for which the caller requested texts.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_turn"
    )]
    pub value: Option<Arc<ConversationTurn>>,
}

fn optional_turn<S: Serializer>(
    turn: &Option<Arc<ConversationTurn>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    turn.as_deref()
        .map(|turn| TransportTurn { id: None, turn })
        .serialize(serializer)
}

/// A turn with its texts: `{"item": {...}, "value": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnDetail {
    /// Everything but the texts.
    pub item: TurnInfo,
    /// The turn. Transports write it as a [`TransportTurn`] without an id.
    #[serde(rename = "value", serialize_with = "turn_without_id")]
    pub turn: Arc<ConversationTurn>,
}

fn turn_without_id<S: Serializer>(
    turn: &ConversationTurn,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    TransportTurn { id: None, turn }.serialize(serializer)
}

/// Which turns a list contains.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnFilter {
    /// Only turns whose texts contain this, ignoring case.
    pub content_search: Option<String>,
    /// Only turns that are (`true`) or are not (`false`) in the summary.
    pub folded: Option<bool>,
    /// Whether to list the texts too. Such a page ends before it has more than 1 MiB.
    pub with_texts: bool,
    /// 1 to 200; default 50.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<TurnId>,
}

helmdeck_core::redacted_debug!(TurnFilter, this => folded = this.folded, limit = this.limit, after = this.after);

/// A page of turns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TurnPage {
    /// The turns, newest first.
    pub items: Vec<TurnInfo>,
    /// Number of turns that are stored of the conversation.
    pub total: u64,
    /// The `after` of the next page; `None` = this was the last.
    pub next: Option<TurnId>,
    /// Number of unreadable turns that this page leaves out.
    pub unreadable: u64,
}

/// Result of deleting a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// Always true: an unknown turn is an error.
    pub deleted: bool,
    /// Number of turns left.
    pub remaining_turns: u64,
    /// Whether the turn was in the summary, which is now rebuilt from the remaining turns.
    pub summary_rebuilt: bool,
}

/// Present state of a conversation under its strategy.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// The strategy.
    pub strategy: Strategy,
    /// The summary.
    pub summary: String,
    /// Number of turns in the context.
    pub recent_turn_count: u64,
    /// The tokens of the context.
    pub estimated_tokens: u64,
    /// The health.
    pub health: Health,
    /// Number of stored turns.
    pub kept_turns: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Number of turns that wait to be summarised.
    pub backlog_turns: u64,
    /// Number of turns that the budget leaves out.
    pub omitted_turns: u64,
    /// Sequence number of the last turn in the summary; 0 = there is no summary.
    pub covers_through: u64,
    /// Grows by one with each flush, restore and delete of a turn; 0 = the conversation doesn't
    /// exist.
    ///
    /// Starts at a random number below 2^52, and at another one after the conversation was
    /// forgotten.
    pub generation: u64,
    /// Consecutive failures of the summarizer.
    pub failures: u32,
    /// Reason of the last failure, in one fixed word; `None` = it didn't fail.
    pub last_failure: Option<String>,
}

helmdeck_core::redacted_debug!(Trace, this => strategy = this.strategy, summary_bytes = this.summary.len(),
    health = this.health, kept_turns = this.kept_turns, backlog_turns = this.backlog_turns,
    covers_through = this.covers_through, generation = this.generation, failures = this.failures);

/// State of summarising, in the JSON form of every transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummaryStatus {
    /// The health.
    pub health: Health,
    /// Number of turns that wait to be summarised.
    pub backlog_turns: u64,
    /// Consecutive failures of the summarizer.
    pub failures: u32,
    /// Reason of the last failure, in one fixed word; `None` = it didn't fail.
    pub last_failure: Option<String>,
}

impl From<Trace> for SummaryStatus {
    fn from(trace: Trace) -> Self {
        let Trace {
            health,
            backlog_turns,
            failures,
            last_failure,
            ..
        } = trace;
        Self {
            health,
            backlog_turns,
            failures,
            last_failure,
        }
    }
}

/// The goal of a conversation.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
pub struct Goal {
    /// The goal; `None` = the user asked for nothing yet.
    pub goal: Option<String>,
    /// Whether it was pinned; if not, it is what the user asked for first.
    pub pinned: bool,
}

impl Goal {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        Self {
            goal: checkpoint.goal().map(str::to_owned),
            pinned: checkpoint.pinned.is_some(),
        }
    }
}

helmdeck_core::redacted_debug!(Goal, this => pinned = this.pinned);

/// Which conversations a list contains.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this user.
    pub user: Option<String>,
    /// 1 to 200; default 50.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// A conversation in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConversationInfo {
    /// The tenant.
    pub tenant: String,
    /// The user.
    pub user: String,
    /// The conversation id.
    pub session: String,
    /// Number of stored turns.
    pub turns: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time of the last change.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub updated_at: Timestamp,
    /// When it expires if nothing is added; `None` = never.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "helmdeck_core::clock::rfc3339::optional"
    )]
    pub expires_at: Option<Timestamp>,
    /// Its health.
    pub health: Health,
}

/// A page of conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConversationPage {
    /// The conversations, by tenant, user and id.
    pub sessions: Vec<ConversationInfo>,
    /// Number of conversations that match the filter.
    ///
    /// Over 500, it includes those that expired and were not swept yet.
    pub total: u64,
    /// Number of those that expire within an hour if nothing is added. Over 500 matches, of this
    /// page only.
    pub expiring_in_1h: u64,
    /// Calls that this process refused in the last 24 hours for an incomplete identity.
    pub identity_rejected_24h: u64,
    /// Turns that this process dropped in the last 24 hours before they were summarised.
    pub recovery_dropped_24h: u64,
    /// The `after` of the next page; `None` = this was the last.
    pub next: Option<String>,
}
