//! What a model is shown of a conversation: one file a strategy.

mod rolling_summary;
mod truncation;

use std::collections::VecDeque;

use crate::config::{Config, Strategy};
use crate::hot::CachedConversation;
use crate::patch::{LlmContextPatch, RecentTurn};
use crate::rows::{Head, Kept};
use crate::tokens::{Counter, MARK};
use crate::turn::ConversationTurn;

/// The most tokens of the first message that is kept as the opening.
const OPENING_TOKENS: u64 = 256;

/// Returns the sequence number of the oldest turn that is shown as it is, if there is room: one after the summary, or the first.
pub(crate) fn oldest_raw(strategy: Strategy, head: &Head, covers_through: u64) -> u64 {
    match strategy {
        Strategy::None => head.seq + 1,
        Strategy::Truncation => head.first,
        Strategy::RollingSummary => head.first.max(covers_through.saturating_add(1)),
    }
}

/// Returns what a model is shown of a conversation.
pub(crate) fn patch(config: &Config, counter: Counter, conversation: &CachedConversation) -> LlmContextPatch {
    match config.strategy {
        Strategy::None => LlmContextPatch { strategy: Strategy::None, ..LlmContextPatch::default() },
        Strategy::Truncation => truncation::patch(config, counter, conversation),
        Strategy::RollingSummary => rolling_summary::patch(config, counter, conversation),
    }
}

/// Returns how many of the oldest turns that are not in the summary are due to be folded into it, for `rolling_summary`.
///
/// `fixed` is what summary and opening take, `unfolded` the number of turns after the summary, and `newest_first` what the
/// newest of them take, at least `recent_turns` of them if there are so many. The newest turn is never due.
pub(crate) fn backlog(config: &Config, fixed: u64, unfolded: u64, newest_first: impl Iterator<Item = u64>) -> u64 {
    let mut kept = 0;
    let mut taken = fixed;
    for tokens in newest_first.take(config.recent_turns) {
        taken = taken.saturating_add(tokens);
        if kept > 0 && config.budget_tokens > 0 && taken > config.budget_tokens {
            break;
        }
        kept += 1;
    }
    unfolded.saturating_sub(kept)
}

/// Returns what is kept of the first message of a conversation as its opening; `None` if it says nothing.
pub(crate) fn opening(config: &Config, counter: Counter, first: &ConversationTurn) -> Option<String> {
    let most = if config.budget_tokens == 0 { OPENING_TOKENS } else { OPENING_TOKENS.min(config.budget_tokens / 4) };
    let text = first.user_message.trim();
    let clamped = counter.clamp(text, most);
    (most > 0 && !clamped.is_empty()).then(|| clamped.into_owned())
}

/// Says whether an opening was taken from this turn, however much of it was kept.
pub(crate) fn is_opening_of(opening: &str, turn: &ConversationTurn) -> bool {
    let message = turn.user_message.trim();
    let start = opening.strip_suffix(MARK).unwrap_or(opening);
    // Where there was no room for the mark nothing tells that it was cut, so a start is enough.
    !start.is_empty() && message.starts_with(start)
}

/// Says whether the conversation has more turns or bytes than are to be kept, by so much that removing some is worth a write.
pub(crate) const fn prune_due(config: &Config, head: &Head) -> bool {
    // Some slack, so that a full conversation is not pruned at every turn.
    head.turns > config.max_turns.saturating_add(config.max_turns / 16)
        || head.bytes > config.max_bytes.saturating_add(config.max_bytes / 16)
}

/// The newest turns that fit.
struct Sight {
    turns: Vec<RecentTurn>,
    /// What they take.
    tokens: u64,
}

/// Returns the newest of `turns` that fit `room` (`None` = whatever they take), oldest first; the newest always.
fn newest(turns: &VecDeque<Kept>, oldest: u64, room: Option<u64>) -> Sight {
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
