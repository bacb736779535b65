//! The conversation memory: what callers use.

mod add;
mod items;
mod replace;
mod sessions;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helmdeck_core::Clock;
use helmdeck_events::Bus;
use helmdeck_memory::{Namespace, Store};

use crate::config::{Config, Strategy, TokenCounter};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::hot::{self, CachedConversation, Hot};
use crate::identity::Identity;
use crate::item::{Added, Deleted, ItemDetail, ItemFilter, ItemPage, SessionFilter, SessionPage, Trace};
use crate::metrics::{Counters, Metrics};
use crate::patch::LlmContextPatch;
use crate::rows::{Rows, State};
use crate::shared_state::Shared;
use crate::snapshot::Snapshot;
use crate::summarizer::Summarizer;
use crate::tokens::Counter;
use crate::turn::NewTurn;
use crate::worker::{Due, Worker};

/// What a conversation memory stands on.
#[derive(Clone)]
pub struct Dependencies {
    /// Where conversations are kept.
    pub store: Arc<dyn Store>,
    /// Where events go.
    pub events: Bus,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What summarises; needed by `rolling_summary` only.
    pub summarizer: Option<Arc<dyn Summarizer>>,
}

impl std::fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dependencies").field("summarizer", &self.summarizer.is_some()).finish_non_exhaustive()
    }
}

/// Conversations of many callers, kept in one store. Cheap to clone; clones are the same memory.
///
/// Every method first says `Closed` after [`ConversationMemory::close`], then refuses an incomplete identity with
/// `IdentityRequired` and one event, and only then reads or writes anything.
#[derive(Clone)]
pub struct ConversationMemory(Arc<Inner>);

struct Inner {
    shared_state: Arc<Shared>,
    worker: Worker,
    closed: AtomicBool,
}

impl std::fmt::Debug for ConversationMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let strategy = self.shared_state().config.strategy;
        f.debug_struct("ConversationMemory").field("strategy", &strategy).finish_non_exhaustive()
    }
}

impl ConversationMemory {
    fn shared_state(&self) -> &Arc<Shared> {
        &self.0.shared_state
    }

    /// Says where the conversation is kept, if the memory is open and the identity complete.
    fn gate(&self, identity: &Identity, operation: &'static str) -> Result<Namespace> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(ConversationError::Closed);
        }
        match identity.missing() {
            Some(reason) => Err(self.shared_state().identity_rejected(identity, operation, reason)),
            None => identity.namespace(),
        }
    }

    fn keeps_nothing(&self) -> bool {
        self.shared_state().config.strategy == Strategy::None
    }

    /// Says whether there are summaries, and so a health other than healthy: what an earlier strategy left is nobody's to mend.
    fn folds(&self) -> bool {
        self.shared_state().config.strategy == Strategy::RollingSummary
    }

    fn health_of(&self, state: &State) -> Health {
        if self.folds() { state.checkpoint.health } else { Health::Healthy }
    }

    /// Asks a conversation in memory, and has folded what is due.
    async fn ask<T>(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        ask: impl Fn(&CachedConversation) -> Option<T>,
    ) -> Result<T> {
        let shared_state = self.shared_state();
        let (answer, due) = shared_state
            .ask(namespace, |cached| ask(cached).map(|answer| (answer, cached.backlog(&shared_state.config) > 0)))
            .await?;
        if due {
            self.0.worker.wake(identity, Due::Fold);
        }
        Ok(answer)
    }

    /// Opens a memory. Within a tokio runtime that has time: folding and sweeping run as tasks of it, until [`Self::close`].
    ///
    /// # Errors
    /// `SummarizerRequired` for `rolling_summary` without one; `Invalid` for settings that cannot be.
    pub fn open(config: Config, dependencies: Dependencies) -> Result<Self> {
        Self::open_as(config, dependencies, true)
    }

    /// Opens a memory for who ends soon: as [`Self::open`], but turns are summarised by [`Self::summarise`] alone, and nothing is swept. That is
    /// left to whoever stays, so that no model is asked for an answer that nobody will wait for.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_briefly(config: Config, dependencies: Dependencies) -> Result<Self> {
        Self::open_as(config, dependencies, false)
    }

    fn open_as(config: Config, dependencies: Dependencies, stays: bool) -> Result<Self> {
        config.validate().map_err(ConversationError::Invalid)?;
        if config.strategy == Strategy::RollingSummary && dependencies.summarizer.is_none() {
            return Err(ConversationError::SummarizerRequired);
        }
        let counter = Counter::new(config.tokens).map_err(ConversationError::Invalid)?;
        if config.strategy != Strategy::None
            && config.tokens != TokenCounter::Chars
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || counter.warm());
        }
        let Dependencies { store, events, clock, summarizer } = dependencies;
        let shared_state = Arc::new(Shared {
            rows: Rows::new(store, counter, config.tokens, Arc::clone(&clock)),
            hot: Hot::new(config.hot_bytes),
            config,
            counter,
            bus: events,
            clock,
            summarizer,
            counters: Counters::default(),
            stays,
        });
        let worker = Worker::start(Arc::clone(&shared_state));
        Ok(Self(Arc::new(Inner { shared_state, worker, closed: AtomicBool::new(false) })))
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared_state().config
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared_state().counters.read(self.shared_state().hot.bytes())
    }

    /// Adds a turn. When it returns, the turn survives the end of this process and a power cut. What it costs does not depend on how
    /// long the conversation is, and no model is asked on the way.
    ///
    /// # Errors
    /// `Oversize`, `TooLarge`, `Invalid`, `OnceReused`: nothing was written. `Contended`, `Store`: nothing was written either, unless the
    /// connection to the store broke while it was: whoever must know gives the turn a `once` and adds it again.
    pub async fn add_turn(&self, identity: &Identity, turn: NewTurn) -> Result<Added> {
        self.add(identity, turn, "add_turn", false).await
    }

    /// Returns what a model is to be shown.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn context(&self, identity: &Identity) -> Result<LlmContextPatch> {
        let namespace = self.gate(identity, "context")?;
        self.patch(identity, &namespace).await
    }

    /// Returns the tokens of what [`Self::context`] would return.
    ///
    /// # Errors
    /// As [`Self::context`].
    pub async fn estimate_tokens(&self, identity: &Identity) -> Result<u64> {
        let namespace = self.gate(identity, "estimate_tokens")?;
        Ok(self.patch(identity, &namespace).await?.tokens)
    }

    /// Deletes every turn and the summary, and makes the conversation healthy. A summary that is on its way is thrown away.
    ///
    /// # Errors
    /// `Contended`, `Store`.
    pub async fn flush(&self, identity: &Identity) -> Result<()> {
        let namespace = self.gate(identity, "flush")?;
        self.clear(identity, &namespace, Reason::Flushed).await
    }

    /// Returns the health.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn health(&self, identity: &Identity) -> Result<Health> {
        let namespace = self.gate(identity, "health")?;
        if self.keeps_nothing() {
            return Ok(Health::Healthy);
        }
        self.ask(identity, &namespace, |cached| Some(self.health_of(&cached.state))).await
    }

    /// Exports the conversation: the summary and every turn that is not in it.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn snapshot(&self, identity: &Identity) -> Result<Snapshot> {
        let namespace = self.gate(identity, "snapshot")?;
        self.export(&namespace).await
    }

    /// Puts an exported conversation in the place of what is there: all of it or, on an error, nothing.
    ///
    /// # Errors
    /// `InvalidSnapshot` for a snapshot of another strategy or no snapshot at all; `TooLarge`, `Oversize`, `Contended`, `Store`.
    pub async fn restore(&self, identity: &Identity, snapshot: &Snapshot) -> Result<()> {
        let namespace = self.gate(identity, "restore")?;
        self.import(identity, &namespace, snapshot).await
    }

    /// Stops folding and sweeping, cancels requests to the summarizer, and waits at most `within` until all have stopped. The store
    /// stays open. Later calls of other methods answer `Closed`; closing again is fine.
    pub async fn close(&self, within: Duration) {
        self.0.closed.store(true, Ordering::Release);
        self.0.worker.close(within).await;
    }

    /// Lists turns, newest first.
    ///
    /// # Errors
    /// `Invalid` for a limit that cannot be; `Corrupt`, `Store`.
    pub async fn list_items(&self, identity: &Identity, filter: &ItemFilter) -> Result<ItemPage> {
        let namespace = self.gate(identity, "list_items")?;
        self.page(&namespace, filter).await
    }

    /// Returns a turn by its id.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt`, `Store`.
    pub async fn get_item(&self, identity: &Identity, key: &str) -> Result<ItemDetail> {
        let namespace = self.gate(identity, "get_item")?;
        self.detail(&namespace, key).await
    }

    /// Adds a turn as an administrator: as [`Self::add_turn`], with the event `memory.item_put`.
    ///
    /// # Errors
    /// As [`Self::add_turn`].
    pub async fn put_item(&self, identity: &Identity, turn: NewTurn) -> Result<Added> {
        self.add(identity, turn, "put_item", true).await
    }

    /// Deletes a turn, with the event `memory.item_deleted`. If it is in the summary, the summary is made anew of the turns that are
    /// kept, so that nothing of it stays behind.
    ///
    /// # Errors
    /// `NotFound`; `Contended`, `Corrupt`, `Store`.
    pub async fn delete_item(&self, identity: &Identity, key: &str) -> Result<Deleted> {
        let namespace = self.gate(identity, "delete_item")?;
        self.remove(identity, &namespace, key).await
    }

    /// Says what the strategy makes of the conversation right now.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn trace(&self, identity: &Identity) -> Result<Trace> {
        let namespace = self.gate(identity, "trace")?;
        if self.keeps_nothing() {
            return Ok(Trace::nothing());
        }
        self.traced(identity, &namespace).await
    }

    /// Lists conversations: those of the caller, or, unless it is narrowed, of everybody; whoever calls checks who may see them.
    ///
    /// # Errors
    /// `Invalid`, `Store`.
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<SessionPage> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(ConversationError::Closed);
        }
        self.conversations(filter).await
    }

    /// Drops what this process holds in memory of a user's conversations, for whoever deleted their rows past this memory. What is on its
    /// way from the store is not held either, and a summary that is on its way finds nothing to take its place in.
    pub fn forgotten(&self, tenant: &str, user: &str) {
        for namespace in self.shared_state().hot.forget_user(tenant, user) {
            self.0.worker.forgotten(&namespace);
        }
    }

    /// Removes a conversation with everything about it, and says how many turns went. Works also if it does not open.
    ///
    /// # Errors
    /// `Store`.
    pub async fn forget(&self, identity: &Identity) -> Result<u64> {
        let namespace = self.gate(identity, "forget")?;
        self.erase(identity, &namespace).await
    }

    /// Folds what is due now, without waiting for the next attempt's time, and returns when nothing is due or `within` has passed.
    /// Returns how many turns still wait.
    ///
    /// # Errors
    /// `Corrupt`, `Store`. A summarizer that fails is no error: the health tells.
    pub async fn summarise(&self, identity: &Identity, within: Duration) -> Result<u64> {
        self.gate(identity, "fold")?;
        self.0.worker.summarise(identity, within).await
    }

    async fn patch(&self, identity: &Identity, namespace: &Namespace) -> Result<LlmContextPatch> {
        if self.keeps_nothing() {
            return Ok(LlmContextPatch { strategy: Strategy::None, ..LlmContextPatch::default() });
        }
        let shared_state = self.shared_state();
        self.ask(identity, namespace, |cached| hot::view(&shared_state.config, shared_state.counter, cached)).await
    }
}
