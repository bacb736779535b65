//! `truncation`: the newest turns that fit, and the opening once the first turn is left out.
//!
//! Older turns stay stored.

use super::{is_opening_of, newest};
use crate::config::{Config, Strategy};
use crate::hot_tier::CachedConversation;
use crate::patch::LlmContextPatch;
use crate::tokens::Counter;

pub(super) fn patch(config: &Config, counter: Counter, conversation: &CachedConversation) -> LlmContextPatch {
    let budget = Some(config.budget_tokens).filter(|budget| *budget > 0);
    let mut sight = newest(&conversation.turns, 0, budget);
    let mut opening = None;
    let mut fixed = 0;
    // While its turn is shown, no opening is needed.
    let is_shown = |said: &str| sight.turns.first().is_some_and(|first| is_opening_of(said, &first.turn));
    if let Some(said) = conversation.state.checkpoint.opening.as_deref().filter(|said| !is_shown(said)) {
        let tokens = counter.count(said);
        let beside = newest(&conversation.turns, 0, budget.map(|budget| budget.saturating_sub(tokens)));
        // The newest turn is shown whole: the opening gives way to it.
        if budget.is_none_or(|budget| beside.tokens.saturating_add(tokens) <= budget) {
            (opening, fixed, sight) = (Some(said.to_owned()), tokens, beside);
        }
    }
    LlmContextPatch {
        opening,
        strategy: Strategy::Truncation,
        omitted_turns: conversation.raw_turns().saturating_sub(sight.turns.len() as u64),
        over_budget: budget.is_some_and(|budget| sight.tokens > budget),
        tokens: sight.tokens.saturating_add(fixed),
        recent_turns: sight.turns,
        unreadable: conversation.unreadable,
        ..LlmContextPatch::default()
    }
}
