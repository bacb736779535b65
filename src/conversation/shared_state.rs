//! What the methods and the work behind their backs both stand on.

use std::sync::Arc;

use helmdeck_core::{Clock, Timestamp};
use helmdeck_events::Bus;
use helmdeck_memory::Namespace;

use crate::config::{Config, Strategy};
use crate::emit;
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::hot::{CachedConversation, Hot, Slot};
use crate::identity::Identity;
use crate::metrics::Counters;
use crate::rows::{Checkpoint, Head, Loaded, Rows, State};
use crate::strategies::oldest_raw;
use crate::summarizer::Summarizer;
use crate::tokens::Counter;

/// How many of the newest turns are read to find out what others wrote.
const CATCH_UP: usize = 8;

/// What the methods and the work behind their backs both stand on.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) rows: Rows,
    pub(crate) counter: Counter,
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) summarizer: Option<Arc<dyn Summarizer>>,
    pub(crate) hot: Hot,
    pub(crate) counters: Counters,
    /// Whether what is due is done without being asked for.
    pub(crate) stays: bool,
}

impl Shared {
    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Says whether a conversation is there and did not end.
    pub(crate) fn is_live(&self, state: &State) -> bool {
        state.is_live(self.now(), self.config.ttl)
    }

    /// Returns the state as callers see it: one that has ended is as if absent, but for the versions at which it can be replaced and
    /// the numbers that must not be given again.
    pub(crate) fn visible(&self, state: State) -> State {
        // What is held is seen so already.
        if state.touched_at.is_none() || self.is_live(&state) {
            return state;
        }
        let generation = state.head.generation + 1;
        let head = Head { seq: state.head.seq, first: state.head.seq + 1, generation, ..Head::default() };
        State { head, checkpoint: self.blank(generation), touched_at: None, ..state }
    }

    /// Returns the checkpoint with which a conversation begins.
    pub(crate) fn blank(&self, generation: u64) -> Checkpoint {
        Checkpoint { generation, strategy: self.config.strategy, ..Checkpoint::default() }
    }

    /// Asks a conversation in memory, which is read first if it is not there, not fresh, or not enough of it (`ask` says `None`).
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub(crate) async fn ask<T>(
        &self,
        namespace: &Namespace,
        ask: impl Fn(&CachedConversation) -> Option<T>,
    ) -> Result<T> {
        let slot = self.hot.slot(namespace);
        let ask = |cached: &CachedConversation| {
            // One that has ended is not there any more, however fresh what is held of it.
            if cached.state.touched_at.is_none() || self.is_live(&cached.state) { ask(cached) } else { None }
        };
        if let Some(answer) = slot.fresh(&self.config, self.clock.monotonic(), ask) {
            self.counters.hit();
            return Ok(answer);
        }
        if slot.is_held() {
            let now = self.clock.monotonic();
            let state = self.rows.state(namespace).await?;
            if let Some(answer) = slot.confirm(&state, now, ask) {
                self.counters.hit();
                return Ok(answer);
            }
            self.counters.miss();
            if let Some(answer) = self.catch_up(namespace, &slot, ask).await?.1 {
                return Ok(answer);
            }
        } else {
            self.counters.miss();
        }
        let cached = self.read(namespace, &slot).await?;
        ask(&cached).ok_or_else(|| ConversationError::Corrupt("its turns are not all there".to_owned()))
    }

    /// Takes in what others wrote to a conversation that is held, and asks it; also returns the state that was read.
    pub(crate) async fn catch_up<T>(
        &self,
        namespace: &Namespace,
        slot: &Arc<Slot>,
        ask: impl FnOnce(&CachedConversation) -> Option<T>,
    ) -> Result<(State, Option<T>)> {
        let (now, epoch) = (self.clock.monotonic(), slot.epoch());
        let loaded = self.rows.load(namespace, CATCH_UP).await?;
        if !self.is_live(&loaded.state) {
            return Ok((self.visible(loaded.state), None));
        }
        let answer = slot.catch_up((&self.config, self.counter), epoch, &loaded, now, ask);
        Ok((loaded.state, answer))
    }

    /// Reads head and checkpoint of a conversation that is not held, for a write. Turns are read when somebody wants to see them; where none
    /// are, there is nothing else to hold.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub(crate) async fn state(&self, namespace: &Namespace, slot: &Arc<Slot>) -> Result<State> {
        let (now, epoch) = (self.clock.monotonic(), slot.epoch());
        let state = self.rows.state(namespace).await?;
        if self.is_live(&state) {
            return Ok(state);
        }
        let state = self.visible(state);
        let nothing = Loaded { from: state.head.first, state: state.clone(), ..Loaded::default() };
        self.hot.keep(namespace, slot, epoch, CachedConversation::new(&self.config, self.counter, nothing, 0, now));
        Ok(state)
    }

    /// Reads a conversation and holds it in memory.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub(crate) async fn read(&self, namespace: &Namespace, slot: &Arc<Slot>) -> Result<CachedConversation> {
        let epoch = slot.epoch();
        let mut limit = self.first_look();
        loop {
            let now = self.clock.monotonic();
            let mut loaded = self.rows.load(namespace, limit).await?;
            let live = self.is_live(&loaded.state);
            loaded.state = self.visible(loaded.state);
            if !live {
                let state = loaded.state;
                loaded = Loaded { from: state.head.first, state, ..Loaded::default() };
            }
            let complete = loaded.from <= loaded.state.head.first;
            let below = self.below(namespace, &loaded).await?;
            let cached = CachedConversation::new(&self.config, self.counter, loaded, below, now);
            if complete || cached.is_enough(&self.config) {
                self.hot.keep(namespace, slot, epoch, cached.clone());
                return Ok(cached);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// Returns how many turns to read at first: about as many as are shown.
    fn first_look(&self) -> usize {
        match (self.config.strategy, self.config.budget_tokens) {
            (Strategy::RollingSummary, _) => self.config.recent_turns.saturating_add(12),
            (_, 0) => 256,
            (_, budget) => usize::try_from(budget / 100).unwrap_or(64).clamp(16, 64),
        }
    }

    /// Counts the turns that are not in the summary and below what was read.
    async fn below(&self, namespace: &Namespace, loaded: &Loaded) -> Result<u64> {
        let head = &loaded.state.head;
        let oldest = oldest_raw(self.config.strategy, head, loaded.state.checkpoint.covers_through);
        if loaded.from <= oldest {
            return Ok(0);
        }
        if !head.has_holes() {
            return Ok(loaded.from - oldest);
        }
        if oldest == head.first {
            return Ok(head.turns.saturating_sub(loaded.turns.len() as u64).saturating_sub(loaded.unreadable));
        }
        let there = self.rows.keys(namespace, crate::rows::form::TURNS, oldest, loaded.from - 1).await?;
        Ok(there.len() as u64)
    }

    /// Tells that the health changed, if the move is legal, and counts it.
    ///
    /// # Errors
    /// `InvalidHealthTransition`: nothing was told.
    pub(crate) fn health_changed(&self, identity: &Identity, prior: Health, new: Health, reason: Reason) -> Result<()> {
        emit::health_changed(&self.bus, identity, prior, new, reason)?;
        self.counters.moved(new);
        Ok(())
    }

    /// Tells that turns were dropped before they were summarised, and counts them; nothing if none was.
    pub(crate) fn recovery_dropped(&self, identity: &Identity, reason: &'static str, count: u64) {
        emit::recovery_dropped(&self.bus, identity, reason, count);
        self.counters.dropped(self.now(), count);
    }

    /// Tells that a method was refused for its identity, counts it, and returns the error.
    pub(crate) fn identity_rejected(
        &self,
        identity: &Identity,
        operation: &'static str,
        reason: String,
    ) -> ConversationError {
        self.counters.rejected(self.now());
        emit::identity_rejected(&self.bus, identity, operation, reason)
    }

    /// Puts a checkpoint that was stored in the place of what is held.
    pub(crate) fn replaced(&self, namespace: &Namespace, checkpoint: &Checkpoint, version: u64) {
        self.hot.replaced(&self.config, self.counter, namespace, checkpoint, version);
    }
}
