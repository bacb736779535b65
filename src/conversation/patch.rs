//! What a model is shown of a conversation.

use std::fmt;
use std::sync::Arc;

use crate::config::Strategy;
use crate::item::ItemId;
use crate::turn::ConversationTurn;

/// The context patch: what an agent puts before its next question.
///
/// Every turn of the conversation is in exactly one of: the summary, the recent turns, the omitted ones. `Serialize` gives the form of
/// the transports: `{strategy, summary?, opening?, recent_turns: [{id, user_message, assistant_response, timestamp, ...}], tokens,
/// omitted_turns, over_budget, unreadable}`; see [`crate::wire`].
#[derive(Clone, PartialEq, Eq, Default)]
pub struct LlmContextPatch {
    /// The strategy.
    pub strategy: Strategy,
    /// The summary of the turns before the recent ones; empty if there is none.
    pub summary: String,
    /// What the user asked for at first, once that turn is in the summary or out of sight: a goal to keep to.
    pub opening: Option<String>,
    /// The turns after the summary, oldest first.
    pub recent_turns: Vec<RecentTurn>,
    /// The tokens of summary, opening and turns, by the configured counter.
    pub tokens: u64,
    /// How many turns are after the summary, and left out because the budget is full. They are kept.
    pub omitted_turns: u64,
    /// Whether the newest turn alone is over the budget; it is shown whole.
    pub over_budget: bool,
    /// How many turns are there that do not open.
    pub unreadable: u64,
}

/// A turn in sight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentTurn {
    /// Its id.
    pub id: ItemId,
    /// The turn.
    pub turn: Arc<ConversationTurn>,
}

impl LlmContextPatch {
    /// Says whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.summary.is_empty() && self.opening.is_none() && self.recent_turns.is_empty()
    }
}

// What people said: no log shows it by accident.
impl fmt::Debug for LlmContextPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmContextPatch")
            .field("strategy", &self.strategy)
            .field("summary_bytes", &self.summary.len())
            .field("opening_bytes", &self.opening.as_ref().map(String::len))
            .field("recent_turns", &self.recent_turns)
            .field("tokens", &self.tokens)
            .field("omitted_turns", &self.omitted_turns)
            .field("over_budget", &self.over_budget)
            .field("unreadable", &self.unreadable)
            .finish()
    }
}
