//! Strategies: how a conversation becomes a context. One file per strategy.

pub(crate) mod due;
mod rolling_summary;
mod truncation;

use std::collections::VecDeque;

pub(crate) use due::{backlog, is_opening_of, oldest_raw, opening, prune_due};

use crate::config::{Config, Strategy};
use crate::hot_tier::CachedConversation;
use crate::patch::{LlmContextPatch, RecentTurn};
use crate::rows::StoredTurn;
use crate::tokens::Counter;

/// Returns the context; `None` if it needs more turns than are cached.
pub(crate) fn view(config: &Config, counter: Counter, cached: &CachedConversation) -> Option<LlmContextPatch> {
    cached.is_enough(config).then(|| patch(config, counter, cached))
}

/// Returns the context of a conversation.
fn patch(config: &Config, counter: Counter, conversation: &CachedConversation) -> LlmContextPatch {
    match config.strategy {
        Strategy::None => LlmContextPatch { strategy: Strategy::None, ..LlmContextPatch::default() },
        Strategy::Truncation => truncation::patch(config, counter, conversation),
        Strategy::RollingSummary => rolling_summary::patch(config, counter, conversation),
    }
}

/// The newest turns that fit.
struct Sight {
    turns: Vec<RecentTurn>,
    /// Their tokens.
    tokens: u64,
}

/// Returns the newest of `turns` that fit into `room` (`None` = unlimited), oldest first, at least one.
fn newest(turns: &VecDeque<StoredTurn>, oldest: u64, room: Option<u64>) -> Sight {
    let (mut count, mut tokens) = (0, 0_u64);
    for kept in turns.iter().rev().take_while(|kept| kept.id.seq >= oldest) {
        let with = tokens.saturating_add(kept.tokens);
        if count > 0 && room.is_some_and(|room| with > room) {
            break;
        }
        (count, tokens) = (count + 1, with);
    }
    let shown = turns.iter().skip(turns.len() - count);
    let turns = shown.map(|kept| RecentTurn { id: kept.id, turn: kept.turn.clone() }).collect();
    Sight { turns, tokens }
}

#[cfg(test)]
mod tests;
