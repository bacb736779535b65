//! What there is to fold of a dialogue.

use crate::ground::Ground;
use crate::health::Health;
use crate::hot::Hold;
use crate::rows::State;
use crate::strategies;

/// What there is to do.
pub(super) struct Look {
    pub(super) state: State,
    /// The sequence number of the oldest turn that is not in the summary.
    pub(super) from: u64,
    /// That of the newest one that is due.
    pub(super) through: u64,
    /// How many turns are due.
    pub(super) due: u64,
    /// How many turns are not in the summary.
    pub(super) unfolded: u64,
    /// The tokens of the newest of them, newest first: as many as may stay out of the summary.
    newest: Vec<u64>,
}

impl Look {
    pub(super) fn of(ground: &Ground, hold: &Hold) -> Self {
        let (due, unfolded) = (hold.backlog(&ground.config), hold.raw_turns());
        let newest = hold.turns.iter().rev().take(ground.config.recent_turns);
        let head = &hold.state.head;
        let stay = usize::try_from(unfolded - due).unwrap_or(usize::MAX);
        let oldest_of_those = stay.checked_sub(1).and_then(|nth| hold.turns.iter().nth_back(nth));
        Self {
            from: strategies::oldest_raw(ground.config.strategy, head, hold.state.checkpoint.covers_through),
            through: oldest_of_those.map_or(head.seq, |kept| kept.id.seq.saturating_sub(1)),
            due,
            unfolded,
            newest: newest.map(|kept| kept.tokens).collect(),
            state: hold.state.clone(),
        }
    }

    /// Says whether there is nothing to do.
    pub(super) fn is_settled(&self) -> bool {
        let recovers = matches!(self.state.checkpoint.health, Health::Degraded | Health::Recovering);
        self.due == 0 && !recovers
    }

    /// Returns the tokens of the newest turns, newest first, if so many are not in the summary.
    pub(super) fn newest(&self, unfolded: u64) -> impl Iterator<Item = u64> {
        self.newest.iter().copied().take(usize::try_from(unfolded).unwrap_or(usize::MAX))
    }

    /// Returns what summary and opening take.
    pub(super) fn fixed(&self, ground: &Ground) -> u64 {
        let checkpoint = &self.state.checkpoint;
        let opening = checkpoint.opening.as_deref().filter(|_| checkpoint.covers_through > 0);
        ground.counter.count(&checkpoint.summary) + opening.map_or(0, |opening| ground.counter.count(opening))
    }
}
