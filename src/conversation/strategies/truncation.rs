//! `truncation`: the newest turns that fit. Older ones stay stored, and out of sight.

use super::newest;
use crate::config::{Config, Strategy};
use crate::hot::Hold;
use crate::patch::LlmContextPatch;

pub(super) fn patch(config: &Config, dialogue: &Hold) -> LlmContextPatch {
    let budget = Some(config.budget_tokens).filter(|budget| *budget > 0);
    let sight = newest(&dialogue.turns, 0, budget);
    LlmContextPatch {
        strategy: Strategy::Truncation,
        omitted_turns: dialogue.raw_turns().saturating_sub(sight.turns.len() as u64),
        over_budget: budget.is_some_and(|budget| sight.tokens > budget),
        tokens: sight.tokens,
        recent_turns: sight.turns,
        unreadable: dialogue.unreadable,
        ..LlmContextPatch::default()
    }
}
