//! Strategies: how a conversation becomes a context, and which work they make.

pub(crate) mod due;
mod goal;
mod greeting;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;

pub(crate) use due::{backlog, oldest_raw, prune_due};
pub(crate) use goal::{goal_tokens, is_opening_of, opening};

use crate::config::{Config, Strategy};
use crate::hot_tier::CachedConversation;
use crate::patch::{LlmContextPatch, RecentTurn};
use crate::rows::StoredTurn;
use crate::tokens::Counter;

/// Returns the context; `None` if it needs more turns than are cached.
pub(crate) fn view(config: &Config, counter: Counter, cached: &CachedConversation) -> Option<LlmContextPatch> {
    cached.is_enough(config).then(|| patch(config, counter, cached))
}

/// Returns the context of a conversation: the goal, the summary, and the newest turns that fit beside them.
///
/// Under `truncation` there is no summary. Turns that are in neither stay stored; with `rolling_summary` they wait to be
/// summarised.
fn patch(config: &Config, counter: Counter, conversation: &CachedConversation) -> LlmContextPatch {
    let (strategy, checkpoint) = (config.strategy, &conversation.state.checkpoint);
    let budget = if config.budget_tokens == 0 { u64::MAX } else { config.budget_tokens };
    let oldest = oldest_raw(strategy, &conversation.state.head, checkpoint.covers_through);
    let (summary, summary_tokens) = match strategy {
        Strategy::None => return LlmContextPatch { strategy, ..LlmContextPatch::default() },
        Strategy::Truncation => ("", 0),
        Strategy::RollingSummary => (checkpoint.summary.as_str(), conversation.summary_tokens),
    };
    let beside = |fixed: u64| newest(&conversation.turns, oldest, budget.saturating_sub(fixed));
    let mut sight = beside(summary_tokens);
    // While its turn is shown, no opening is needed.
    let is_shown =
        |goal: &str| checkpoint.pinned.is_none() && sight.turns.iter().any(|recent| is_opening_of(goal, &recent.turn));
    let goal = checkpoint.goal().filter(|goal| !is_shown(goal));
    let goal = goal.map(|goal| counter.clamp(goal, goal_tokens(config))).filter(|goal| !goal.is_empty());
    let goal_tokens = goal.as_deref().map_or(0, |goal| counter.count(goal));
    if goal.is_some() {
        sight = beside(summary_tokens.saturating_add(goal_tokens));
    }
    // The goal and the newest turn are shown whole, so the summary gives way. If these two alone exceed the budget,
    // nothing is hidden.
    let least = sight.tokens.saturating_add(goal_tokens);
    let over_budget = least > budget;
    let (mut summary, mut summary_tokens) = (Cow::Borrowed(summary), summary_tokens);
    if !over_budget && summary_tokens > budget - least {
        summary = counter.clamp(&summary, budget - least).into_owned().into();
        summary_tokens = counter.count(&summary);
    }
    LlmContextPatch {
        strategy,
        goal: goal.map(Cow::into_owned),
        summary: summary.into_owned(),
        omitted_turns: conversation.raw_turns().saturating_sub(sight.turns.len() as u64),
        over_budget,
        tokens: least.saturating_add(summary_tokens),
        recent_turns: sight.turns,
        unreadable: conversation.unreadable,
    }
}

/// The newest turns that fit.
struct Sight {
    turns: Vec<RecentTurn>,
    /// Their tokens.
    tokens: u64,
}

/// Returns the newest of `turns` that fit into `room`, oldest first, at least one.
fn newest(turns: &VecDeque<StoredTurn>, oldest: u64, room: u64) -> Sight {
    let (mut count, mut tokens) = (0, 0_u64);
    for kept in turns.iter().rev().take_while(|kept| kept.id.seq >= oldest) {
        let with = tokens.saturating_add(kept.tokens);
        if count > 0 && with > room {
            break;
        }
        (count, tokens) = (count + 1, with);
    }
    let shown = turns.iter().skip(turns.len() - count);
    let turns = shown.map(|kept| RecentTurn { id: kept.id, turn: kept.turn.clone() }).collect();
    Sight { turns, tokens }
}
