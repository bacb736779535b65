//! What there is to summarise of a conversation.

use crate::health::Health;
use crate::hot::CachedConversation;
use crate::rows::State;
use crate::shared_state::Shared;
use crate::strategies;

/// What there is to do.
pub(super) struct Backlog {
    pub(super) state: State,
    /// The sequence number of the oldest turn that is not in the summary.
    pub(super) from: u64,
    /// That of the newest one that is due.
    pub(super) through: u64,
    /// How many turns are due.
    pub(super) due: u64,
    /// How many turns are not in the summary.
    pub(super) unsummarised: u64,
    /// The tokens of the newest of them, newest first: as many as may stay out of the summary.
    newest: Vec<u64>,
}

impl Backlog {
    pub(super) fn of(shared_state: &Shared, cached: &CachedConversation) -> Self {
        let (due, unsummarised) = (cached.backlog(&shared_state.config), cached.raw_turns());
        let newest = cached.turns.iter().rev().take(shared_state.config.recent_turns);
        let head = &cached.state.head;
        let stay = usize::try_from(unsummarised - due).unwrap_or(usize::MAX);
        let oldest_of_those = stay.checked_sub(1).and_then(|nth| cached.turns.iter().nth_back(nth));
        Self {
            from: strategies::oldest_raw(shared_state.config.strategy, head, cached.state.checkpoint.covers_through),
            through: oldest_of_those.map_or(head.seq, |kept| kept.id.seq.saturating_sub(1)),
            due,
            unsummarised,
            newest: newest.map(|kept| kept.tokens).collect(),
            state: cached.state.clone(),
        }
    }

    /// Says whether there is nothing to do.
    pub(super) fn is_settled(&self) -> bool {
        let recovers = matches!(self.state.checkpoint.health, Health::Degraded | Health::Recovering);
        self.due == 0 && !recovers
    }

    /// Returns the tokens of the newest turns, newest first, if so many are not in the summary.
    pub(super) fn newest(&self, unsummarised: u64) -> impl Iterator<Item = u64> {
        self.newest.iter().copied().take(usize::try_from(unsummarised).unwrap_or(usize::MAX))
    }

    /// Returns what summary and opening take.
    pub(super) fn fixed(&self, shared_state: &Shared) -> u64 {
        let checkpoint = &self.state.checkpoint;
        let opening = checkpoint.opening.as_deref().filter(|_| checkpoint.covers_through > 0);
        shared_state.counter.count(&checkpoint.summary)
            + opening.map_or(0, |opening| shared_state.counter.count(opening))
    }
}
