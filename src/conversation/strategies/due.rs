//! Due work: which turns to summarise or prune.

use crate::config::{Config, Strategy};
use crate::rows::Head;

/// Returns the sequence number of the oldest turn that may be shown.
///
/// It is the first turn, or the one after the summary.
pub(crate) fn oldest_raw(strategy: Strategy, head: &Head, covers_through: u64) -> u64 {
    match strategy {
        Strategy::None => head.seq + 1,
        Strategy::Truncation => head.first,
        Strategy::RollingSummary => head.first.max(covers_through.saturating_add(1)),
    }
}

/// Returns how many of the oldest unsummarised turns are due to be summarised, for
/// `rolling_summary`.
///
/// `fixed` is the tokens of a context without turns, `unsummarised` the number of turns after the
/// summary, and `newest_first` the room of at least the newest `recent_turns` of them. The newest
/// turn is never due.
pub(crate) fn backlog(
    config: &Config,
    fixed: u64,
    unsummarised: u64,
    newest_first: impl Iterator<Item = u64>,
) -> u64 {
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

/// Returns whether the conversation exceeds its limits by so much that removing turns is worth a
/// write.
pub(crate) const fn prune_due(config: &Config, head: &Head) -> bool {
    // With slack, so that a full conversation is not pruned at every turn.
    head.turns > config.max_turns.saturating_add(config.max_turns / 16)
        || head.bytes > config.max_bytes.saturating_add(config.max_bytes / 16)
}
