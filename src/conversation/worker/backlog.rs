//! The turns of a conversation that are due to be summarised.

use crate::hot_tier::CachedConversation;
use crate::rows::{StoredState, StoredTurn};
use crate::shared::Shared;
use crate::strategies;

/// The due turns of a conversation.
pub(super) struct Backlog {
    pub(super) state: StoredState,
    /// Sequence number of the oldest unsummarised turn.
    pub(super) from: u64,
    /// Sequence number of the newest due turn.
    pub(super) through: u64,
    /// Number of due turns.
    pub(super) due: u64,
    /// Number of unsummarised turns.
    pub(super) unsummarised: u64,
    /// Room of the newest unsummarised turns, newest first: of those that may stay out of the
    /// summary.
    newest: Vec<u64>,
}

impl Backlog {
    pub(super) fn of(shared: &Shared, cached: &CachedConversation) -> Self {
        let (due, unsummarised) = (cached.backlog(&shared.config), cached.raw_turns());
        let newest = cached.turns.iter().rev().take(shared.config.recent_turns);
        let head = &cached.state.head;
        let stay = usize::try_from(unsummarised - due).unwrap_or(usize::MAX);
        let oldest_of_those = stay
            .checked_sub(1)
            .and_then(|nth| cached.turns.iter().nth_back(nth));
        Self {
            from: strategies::oldest_raw(
                shared.config.strategy,
                head,
                cached.state.checkpoint.covers_through,
            ),
            through: oldest_of_those.map_or(head.seq, |kept| kept.id.seq.saturating_sub(1)),
            due,
            unsummarised,
            newest: newest.map(StoredTurn::room).collect(),
            state: cached.state.clone(),
        }
    }

    /// Returns whether there is nothing to do.
    pub(super) fn is_settled(&self) -> bool {
        self.due == 0 && !self.state.checkpoint.recovers()
    }

    /// Returns the room of the newest turns, newest first, given the number of unsummarised ones.
    pub(super) fn newest(&self, unsummarised: u64) -> impl Iterator<Item = u64> {
        self.newest
            .iter()
            .copied()
            .take(usize::try_from(unsummarised).unwrap_or(usize::MAX))
    }

    /// Returns the tokens of a context without turns.
    pub(super) fn fixed(&self, shared: &Shared) -> u64 {
        self.state.checkpoint.fixed(shared.counter)
    }
}
