//! The context of a model: what an agent puts before its next question.

use std::sync::Arc;

use crate::config::Strategy;
use crate::turn::ConversationTurn;
use crate::turn_id::TurnId;

/// The context patch: what an agent puts before its next question.
///
/// Every turn of the conversation is in exactly one of: the summary, the recent turns, the omitted
/// ones. Transports write it as a [`crate::RenderedContext`].
#[derive(Clone, PartialEq, Eq, Default)]
pub struct LlmContextPatch {
    /// The strategy.
    pub strategy: Strategy,
    /// The goal: the pinned one, or else what the user asked for first, unless that turn is shown.
    pub goal: Option<String>,
    /// The summary of the turns before the recent ones; may be empty.
    pub summary: String,
    /// The turns after the summary, oldest first.
    pub recent_turns: Vec<RecentTurn>,
    /// Whether the summary was longer than its limit or the room for it, and lacks its oldest part.
    pub summary_cut: bool,
    /// The tokens of goal, summary and turns, by the configured counter.
    pub tokens: u64,
    /// Number of turns after the summary that the budget leaves out. They stay stored.
    pub omitted_turns: u64,
    /// Whether the newest turn and the goal exceed the budget; both are included whole.
    pub over_budget: bool,
    /// Number of unreadable turns.
    pub unreadable: u64,
}

/// A turn of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentTurn {
    /// Its id.
    pub id: TurnId,
    /// The turn.
    pub turn: Arc<ConversationTurn>,
}

impl LlmContextPatch {
    /// Returns whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.summary.is_empty() && self.goal.is_none() && self.recent_turns.is_empty()
    }
}

helmdeck_core::redacted_debug!(LlmContextPatch, this => strategy = this.strategy,
    summary_bytes = this.summary.len(), recent_turns = this.recent_turns, tokens = this.tokens,
    omitted_turns = this.omitted_turns, over_budget = this.over_budget, unreadable = this.unreadable);
