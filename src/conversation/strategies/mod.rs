//! Strategies: how a conversation becomes a context. One file per strategy.

mod rolling_summary;
mod truncation;

use std::collections::VecDeque;

use crate::config::{Config, Strategy};
use crate::hot_tier::CachedConversation;
use crate::patch::{LlmContextPatch, RecentTurn};
use crate::rows::{Head, StoredTurn};
use crate::tokens::{Counter, MARK};
use crate::turn::ConversationTurn;

/// Maximum tokens of the opening.
const OPENING_TOKENS: u64 = 256;

/// Returns the sequence number of the oldest turn that may be shown: the first, or the one after the summary.
pub(crate) fn oldest_raw(strategy: Strategy, head: &Head, covers_through: u64) -> u64 {
    match strategy {
        Strategy::None => head.seq + 1,
        Strategy::Truncation => head.first,
        Strategy::RollingSummary => head.first.max(covers_through.saturating_add(1)),
    }
}

/// Returns the context of a conversation.
pub(crate) fn patch(config: &Config, counter: Counter, conversation: &CachedConversation) -> LlmContextPatch {
    match config.strategy {
        Strategy::None => LlmContextPatch { strategy: Strategy::None, ..LlmContextPatch::default() },
        Strategy::Truncation => truncation::patch(config, counter, conversation),
        Strategy::RollingSummary => rolling_summary::patch(config, counter, conversation),
    }
}

/// Returns how many of the oldest unsummarised turns are due to be summarised, for `rolling_summary`.
///
/// `fixed` is the tokens of summary and opening, `unsummarised` the number of turns after the summary, and
/// `newest_first` the tokens of at least the newest `recent_turns` of them. The newest turn is never due.
pub(crate) fn backlog(config: &Config, fixed: u64, unsummarised: u64, newest_first: impl Iterator<Item = u64>) -> u64 {
    let mut kept = 0;
    let mut taken = fixed;
    for tokens in newest_first.take(config.recent_turns) {
        taken = taken.saturating_add(tokens);
        if kept > 0 && config.budget_tokens > 0 && taken > config.budget_tokens {
            break;
        }
        kept += 1;
    }
    unsummarised.saturating_sub(kept)
}

/// Returns the opening, from the first message of a conversation; `None` if that is empty.
pub(crate) fn opening(config: &Config, counter: Counter, first: &ConversationTurn) -> Option<String> {
    let most = if config.budget_tokens == 0 { OPENING_TOKENS } else { OPENING_TOKENS.min(config.budget_tokens / 4) };
    let text = first.user_message.trim();
    let clamped = counter.clamp(text, most);
    (most > 0 && !clamped.is_empty()).then(|| clamped.into_owned())
}

/// Returns whether an opening was taken from this turn, however much of it was cut.
pub(crate) fn is_opening_of(opening: &str, turn: &ConversationTurn) -> bool {
    let message = turn.user_message.trim();
    let start = opening.strip_suffix(MARK).unwrap_or(opening);
    // A short opening has no mark of its cut, so a common start is enough.
    !start.is_empty() && message.starts_with(start)
}

/// Returns whether the conversation exceeds its limits by so much that removing turns is worth a write.
pub(crate) const fn prune_due(config: &Config, head: &Head) -> bool {
    // With slack, so that a full conversation is not pruned at every turn.
    head.turns > config.max_turns.saturating_add(config.max_turns / 16)
        || head.bytes > config.max_bytes.saturating_add(config.max_bytes / 16)
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
