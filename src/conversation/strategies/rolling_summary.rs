//! `rolling_summary`: a summary, and the newest turns that fit beside it.
//!
//! Turns in neither wait to be summarised.

use super::newest;
use crate::config::{Config, Strategy};
use crate::hot_tier::CachedConversation;
use crate::patch::LlmContextPatch;
use crate::tokens::Counter;

pub(super) fn patch(config: &Config, counter: Counter, conversation: &CachedConversation) -> LlmContextPatch {
    let checkpoint = &conversation.state.checkpoint;
    let budget = Some(config.budget_tokens).filter(|budget| *budget > 0);
    let oldest = checkpoint.covers_through.saturating_add(1);
    let mut fixed = conversation.fixed();
    let sight = newest(&conversation.turns, oldest, budget.map(|budget| budget.saturating_sub(fixed)));
    let mut patch = LlmContextPatch {
        strategy: Strategy::RollingSummary,
        summary: checkpoint.summary.clone(),
        opening: checkpoint.opening.clone().filter(|_| checkpoint.covers_through > 0),
        omitted_turns: conversation.raw_turns().saturating_sub(sight.turns.len() as u64),
        over_budget: budget.is_some_and(|budget| sight.tokens > budget),
        recent_turns: sight.turns,
        unreadable: conversation.unreadable,
        ..LlmContextPatch::default()
    };
    // The newest turn is shown whole, so the rest gives way: first the opening, then the end of the summary. If the
    // newest turn alone exceeds the budget, nothing is hidden.
    if let Some(budget) = budget.filter(|budget| !patch.over_budget && sight.tokens.saturating_add(fixed) > *budget) {
        let room = budget - sight.tokens;
        patch.opening = None;
        fixed = conversation.summary_tokens;
        if fixed > room {
            patch.summary = counter.clamp(&patch.summary, room).into_owned();
            fixed = counter.count(&patch.summary);
        }
    }
    patch.tokens = sight.tokens.saturating_add(fixed);
    patch
}
