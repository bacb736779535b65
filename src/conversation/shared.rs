//! Shared state of the methods and the background worker.

use std::sync::Arc;

use helmdeck_core::{Clock, Timestamp};
use helmdeck_events::{Bus, EventKind};
use helmdeck_memory::Namespace;

use crate::config::{Config, Strategy};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::hot_tier::{CachedConversation, HotTier, Slot};
use crate::identity::Identity;
use crate::metrics::Counters;
use crate::rows::{Checkpoint, Head, Loaded, Rows, StoredState};
use crate::strategies::oldest_raw;
use crate::summarizer::Summarizer;
use crate::tokens::Counter;

/// Number of newest turns that are read to catch up with other processes.
const CATCH_UP: usize = 8;

/// Shared state of the methods and the background worker.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) rows: Rows,
    pub(crate) counter: Counter,
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) summarizer: Option<Arc<dyn Summarizer>>,
    pub(crate) hot: HotTier,
    pub(crate) counters: Counters,
    /// Whether the worker runs by itself.
    pub(crate) stays: bool,
}

impl Shared {
    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns whether a conversation exists and has not expired.
    pub(crate) fn is_live(&self, state: &StoredState) -> bool {
        state.is_live(self.now(), self.config.ttl)
    }

    /// Returns the state as callers see it.
    ///
    /// An expired conversation looks absent, but keeps the versions to expect and the used sequence
    /// numbers.
    pub(crate) fn visible(&self, state: StoredState) -> StoredState {
        // A cached state was converted before.
        if state.touched_at.is_none() || self.is_live(&state) {
            return state;
        }
        let generation = state.head.generation + 1;
        let head = Head {
            seq: state.head.seq,
            first: state.head.seq + 1,
            generation,
            ..Head::default()
        };
        StoredState {
            head,
            checkpoint: self.blank(generation),
            touched_at: None,
            ..state
        }
    }

    /// Returns the checkpoint of a new conversation.
    pub(crate) fn blank(&self, generation: u64) -> Checkpoint {
        Checkpoint {
            generation,
            strategy: self.config.strategy,
            ..Checkpoint::default()
        }
    }

    /// Queries the cached copy.
    ///
    /// Reads it first if it is missing, not fresh or not enough (`ask` returns `None`).
    pub(crate) async fn ask<T>(
        &self,
        namespace: &Namespace,
        ask: impl Fn(&CachedConversation) -> Option<T>,
    ) -> Result<T> {
        let slot = self.hot.slot(namespace);
        let ask = |cached: &CachedConversation| {
            // An expired conversation is absent, however fresh its copy.
            if cached.state.touched_at.is_none() || self.is_live(&cached.state) {
                ask(cached)
            } else {
                None
            }
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
        ask(&cached)
            .ok_or_else(|| ConversationError::Corrupt("its turns are not all there".to_owned()))
    }

    /// Catches up with other processes and queries the copy. Returns the state that was read, too.
    pub(crate) async fn catch_up<T>(
        &self,
        namespace: &Namespace,
        slot: &Arc<Slot>,
        ask: impl FnOnce(&CachedConversation) -> Option<T>,
    ) -> Result<(StoredState, Option<T>)> {
        let (now, epoch) = (self.clock.monotonic(), slot.epoch());
        let loaded = self.rows.load(namespace, CATCH_UP).await?;
        if !self.is_live(&loaded.state) {
            return Ok((self.visible(loaded.state), None));
        }
        let answer = slot.catch_up((&self.config, self.counter), epoch, &loaded, now, ask);
        Ok((loaded.state, answer))
    }

    /// Reads head and checkpoint for a write to a conversation that is not cached.
    ///
    /// Turns are read when a context needs them; an empty conversation is cached at once.
    pub(crate) async fn state(
        &self,
        namespace: &Namespace,
        slot: &Arc<Slot>,
    ) -> Result<StoredState> {
        let (now, epoch) = (self.clock.monotonic(), slot.epoch());
        let state = self.rows.state(namespace).await?;
        if self.is_live(&state) {
            return Ok(state);
        }
        let state = self.visible(state);
        let nothing = Loaded {
            from: state.head.first,
            state: state.clone(),
            ..Loaded::default()
        };
        self.hot.keep(
            namespace,
            slot,
            epoch,
            CachedConversation::new(&self.config, self.counter, nothing, 0, now),
        );
        Ok(state)
    }

    /// Reads a conversation and caches it.
    pub(crate) async fn read(
        &self,
        namespace: &Namespace,
        slot: &Arc<Slot>,
    ) -> Result<CachedConversation> {
        let epoch = slot.epoch();
        let mut limit = self.first_look();
        loop {
            let now = self.clock.monotonic();
            let mut loaded = self.rows.load(namespace, limit).await?;
            let live = self.is_live(&loaded.state);
            loaded.state = self.visible(loaded.state);
            if !live {
                let state = loaded.state;
                loaded = Loaded {
                    from: state.head.first,
                    state,
                    ..Loaded::default()
                };
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

    /// Returns how many turns to read first: about as many as a context shows.
    fn first_look(&self) -> usize {
        match (self.config.strategy, self.config.budget_tokens) {
            (Strategy::RollingSummary, _) => self.config.recent_turns.saturating_add(12),
            (_, 0) => 256,
            (_, budget) => usize::try_from(budget / 100).unwrap_or(64).clamp(16, 64),
        }
    }

    /// Counts the unsummarised turns older than those read.
    async fn below(&self, namespace: &Namespace, loaded: &Loaded) -> Result<u64> {
        let head = &loaded.state.head;
        let oldest = oldest_raw(
            self.config.strategy,
            head,
            loaded.state.checkpoint.covers_through,
        );
        if loaded.from <= oldest {
            return Ok(0);
        }
        if !head.has_holes() {
            return Ok(loaded.from - oldest);
        }
        if oldest == head.first {
            return Ok(head
                .turns
                .saturating_sub(loaded.turns.len() as u64)
                .saturating_sub(loaded.unreadable));
        }
        let there = self
            .rows
            .keys(
                namespace,
                crate::rows::encoding::TURNS,
                oldest,
                loaded.from - 1,
            )
            .await?;
        Ok(there.len() as u64)
    }

    /// Publishes a change of health and counts it, if the table allows it.
    ///
    /// # Errors
    /// `InvalidHealthTransition`: nothing was published.
    pub(crate) fn health_changed(
        &self,
        identity: &Identity,
        prior: Health,
        new: Health,
        reason: Reason,
    ) -> Result<()> {
        if !prior.allows(new, reason) {
            return Err(ConversationError::InvalidHealthTransition { prior, new });
        }
        let (who, reason) = (identity.who(), reason.as_str());
        if prior != new {
            let Identity {
                tenant,
                user,
                session,
                ..
            } = identity;
            tracing::info!(%tenant, %user, %session, %prior, %new, reason, "the health of a conversation changed");
        }
        self.bus.publish(EventKind::MemoryHealthChanged {
            who,
            prior: prior.as_str(),
            new: new.as_str(),
            reason,
        });
        self.counters.moved(new);
        Ok(())
    }

    /// Publishes and counts turns that were dropped before they were summarised; nothing if `count`
    /// is 0.
    pub(crate) fn recovery_dropped(&self, identity: &Identity, reason: &'static str, count: u64) {
        if count > 0 {
            let Identity {
                tenant,
                user,
                session,
                ..
            } = identity;
            tracing::warn!(%tenant, %user, %session, reason, count, "turns of a conversation were dropped unsummarised");
            self.bus.publish(EventKind::MemoryRecoveryDropped {
                who: identity.who(),
                reason,
                count,
            });
        }
        self.counters.dropped(self.now(), count);
    }

    /// Publishes that a summary of so many tokens was cut.
    pub(crate) fn summary_cut(&self, identity: &Identity, tokens: u64) {
        let (
            Identity {
                tenant,
                user,
                session,
                ..
            },
            limit,
        ) = (identity, self.config.summary_tokens());
        tracing::warn!(%tenant, %user, %session, tokens, limit, "a summary stayed over its limit; its start was cut off");
        self.bus.publish(EventKind::MemorySummaryCut {
            who: identity.who(),
            tokens,
            limit,
        });
    }

    /// Publishes and counts a refused identity, and returns the error.
    pub(crate) fn identity_rejected(
        &self,
        identity: &Identity,
        operation: &'static str,
        reason: String,
    ) -> ConversationError {
        self.counters.rejected(self.now());
        let who = identity.who();
        self.bus.publish(EventKind::MemoryIdentityRejected {
            who,
            operation,
            reason: reason.clone(),
        });
        ConversationError::IdentityRequired { reason }
    }

    /// Updates the cached copy with a checkpoint that was stored.
    pub(crate) fn replaced(&self, namespace: &Namespace, checkpoint: &Checkpoint, version: u64) {
        self.hot
            .replaced(&self.config, self.counter, namespace, checkpoint, version);
    }
}
