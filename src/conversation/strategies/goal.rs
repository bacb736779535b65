//! The goal of a conversation: a pinned text, or else the opening.
//!
//! The opening is the start of the user's first message that is more than a greeting.

use super::greeting::is_greeting;
use crate::config::Config;
use crate::tokens::{Counter, MARK};
use crate::turn::ConversationTurn;

/// Maximum tokens of a goal.
const GOAL_TOKENS: u64 = 256;

/// Returns the maximum tokens of a goal: never more than a quarter of the budget.
pub(crate) const fn goal_tokens(config: &Config) -> u64 {
    let quarter = config.budget_tokens / 4;
    if config.budget_tokens == 0 || GOAL_TOKENS < quarter {
        GOAL_TOKENS
    } else {
        quarter
    }
}

/// Returns the opening of a conversation whose earlier turns have none; `None` if this turn has
/// none either.
pub(crate) fn opening(
    config: &Config,
    counter: Counter,
    turn: &ConversationTurn,
) -> Option<String> {
    let text = turn.user_message.trim();
    if is_greeting(text) {
        return None;
    }
    let clamped = counter.clamp(text, goal_tokens(config));
    (!clamped.is_empty()).then(|| clamped.into_owned())
}

/// Returns whether an opening was taken from this turn, however much of it was cut.
pub(crate) fn is_opening_of(opening: &str, turn: &ConversationTurn) -> bool {
    let message = turn.user_message.trim();
    let start = opening.strip_suffix(MARK).unwrap_or(opening);
    // A short opening has no mark of its cut, so a common start is enough.
    !start.is_empty() && message.starts_with(start)
}
