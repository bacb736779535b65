//! The API of the conversation memory.

mod add;
mod list;
mod replace;
#[cfg(test)]
mod tests;
mod transfer;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helmdeck_core::Clock;
use helmdeck_events::Bus;
use helmdeck_memory::{Namespace, Store};

use crate::config::{Config, Strategy, TokenCounter};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::hot_tier::{self, CachedConversation, HotTier};
use crate::identity::Identity;
use crate::metrics::{Counters, Metrics};
use crate::patch::LlmContextPatch;
use crate::rows::{Rows, State};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::summarizer::Summarizer;
use crate::tokens::Counter;
use crate::turn::NewTurn;
use crate::views::{Added, ConversationFilter, ConversationPage, Deleted, Trace, TurnDetail, TurnFilter, TurnPage};
use crate::worker::{Due, Worker};

/// Dependencies of a conversation memory.
#[derive(Clone)]
pub struct Dependencies {
    /// The store of the conversations.
    pub store: Arc<dyn Store>,
    /// The event bus.
    pub events: Bus,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The summarizer; only `rolling_summary` needs one.
    pub summarizer: Option<Arc<dyn Summarizer>>,
}

redacted_debug!(Dependencies, "Dependencies", this => summarizer = this.summarizer.is_some());

/// The conversations of many callers, in one store. Cheap to clone; clones share one memory.
///
/// Every method first returns `Closed` after [`ConversationMemory::close`]. Then it refuses an incomplete identity with
/// `IdentityRequired` and one event. Only then it reads or writes.
#[derive(Clone)]
pub struct ConversationMemory(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    worker: Worker,
    closed: AtomicBool,
}

redacted_debug!(ConversationMemory, "ConversationMemory", this => strategy = this.shared().config.strategy);

impl ConversationMemory {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Checks that the memory is open and the identity complete, and returns the namespace.
    fn gate(&self, identity: &Identity, operation: &'static str) -> Result<Namespace> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(ConversationError::Closed);
        }
        match identity.missing() {
            Some(reason) => Err(self.shared().identity_rejected(identity, operation, reason)),
            None => identity.namespace(),
        }
    }

    fn keeps_nothing(&self) -> bool {
        self.shared().config.strategy == Strategy::None
    }

    /// Returns whether there are summaries, and so a health. What an earlier strategy left doesn't count.
    fn summarises(&self) -> bool {
        self.shared().config.strategy == Strategy::RollingSummary
    }

    fn health_of(&self, state: &State) -> Health {
        if self.summarises() { state.checkpoint.health } else { Health::Healthy }
    }

    /// Queries a conversation, and wakes the worker if turns are due.
    async fn ask<T>(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        ask: impl Fn(&CachedConversation) -> Option<T>,
    ) -> Result<T> {
        let shared = self.shared();
        let (answer, due) = shared
            .ask(namespace, |cached| ask(cached).map(|answer| (answer, cached.backlog(&shared.config) > 0)))
            .await?;
        if due {
            self.0.worker.wake(identity, Due::Summarise);
        }
        Ok(answer)
    }

    /// Opens a memory, within a tokio runtime with time: the worker runs on it until [`Self::close`].
    ///
    /// # Errors
    /// `SummarizerRequired` for `rolling_summary` without a summarizer; `Invalid` for invalid settings.
    pub fn open(config: Config, dependencies: Dependencies) -> Result<Self> {
        Self::open_as(config, dependencies, true)
    }

    /// Opens a memory for a short-lived process: turns are summarised by [`Self::summarise`] only, and nothing is
    /// swept. That is left to long-lived processes, so that no model is asked for an answer that nobody will wait for.
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
        let shared = Arc::new(Shared {
            rows: Rows::new(store, counter, config.tokens, Arc::clone(&clock)),
            hot: HotTier::new(config.hot_bytes),
            config,
            counter,
            bus: events,
            clock,
            summarizer,
            counters: Counters::default(),
            stays,
        });
        let worker = Worker::start(Arc::clone(&shared));
        Ok(Self(Arc::new(Inner { shared, worker, closed: AtomicBool::new(false) })))
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared().config
    }

    /// Returns the counters.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared().counters.read(self.shared().hot.bytes())
    }

    /// Adds a turn. Once it returns, the turn survives a crash of the process and a power cut. The cost does not depend
    /// on the length of the conversation, and no model is called.
    ///
    /// # Errors
    /// `Oversize`, `TooLarge`, `Invalid`, `OnceReused`: nothing was written. `Contended`, `Store`: nothing was written,
    /// unless the connection broke during the write. Callers that must know set `once` and add the turn again.
    pub async fn add_turn(&self, identity: &Identity, turn: NewTurn) -> Result<Added> {
        self.add(identity, turn, "add_turn", false).await
    }

    /// Returns the context of the next model call.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn context(&self, identity: &Identity) -> Result<LlmContextPatch> {
        let namespace = self.gate(identity, "context")?;
        self.patch(identity, &namespace).await
    }

    /// Returns the tokens of the result of [`Self::context`].
    ///
    /// # Errors
    /// As [`Self::context`].
    pub async fn estimate_tokens(&self, identity: &Identity) -> Result<u64> {
        let namespace = self.gate(identity, "estimate_tokens")?;
        Ok(self.patch(identity, &namespace).await?.tokens)
    }

    /// Deletes every turn and the summary, and resets the health. A summary in flight is discarded.
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

    /// Exports the conversation: the summary and every unsummarised turn.
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
    /// `InvalidSnapshot` for a snapshot of another strategy or no snapshot at all; `TooLarge`, `Oversize`, `Contended`,
    /// `Store`.
    pub async fn restore(&self, identity: &Identity, snapshot: &Snapshot) -> Result<()> {
        let namespace = self.gate(identity, "restore")?;
        self.import(identity, &namespace, snapshot).await
    }

    /// Stops folding and sweeping, cancels requests to the summarizer, and waits at most `within` until all have
    /// stopped. The store stays open. Later calls of other methods answer `Closed`; closing again is fine.
    pub async fn close(&self, within: Duration) {
        self.0.closed.store(true, Ordering::Release);
        self.0.worker.close(within).await;
    }

    /// Lists turns, newest first.
    ///
    /// # Errors
    /// `Invalid` for an invalid limit; `Corrupt`, `Store`.
    pub async fn list_turns(&self, identity: &Identity, filter: &TurnFilter) -> Result<TurnPage> {
        let namespace = self.gate(identity, "list_items")?;
        self.page(&namespace, filter).await
    }

    /// Returns a turn by its id.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt`, `Store`.
    pub async fn get_turn(&self, identity: &Identity, key: &str) -> Result<TurnDetail> {
        let namespace = self.gate(identity, "get_item")?;
        self.detail(&namespace, key).await
    }

    /// Adds a turn as an administrator, with the event `memory.item_put`.
    ///
    /// # Errors
    /// As [`Self::add_turn`].
    pub async fn put_turn(&self, identity: &Identity, turn: NewTurn) -> Result<Added> {
        self.add(identity, turn, "put_item", true).await
    }

    /// Deletes a turn, with the event `memory.item_deleted`. If it is in the summary, the summary is rebuilt from the
    /// remaining turns, so that nothing of it remains.
    ///
    /// # Errors
    /// `NotFound`; `Contended`, `Corrupt`, `Store`.
    pub async fn delete_turn(&self, identity: &Identity, key: &str) -> Result<Deleted> {
        let namespace = self.gate(identity, "delete_item")?;
        self.remove(identity, &namespace, key).await
    }

    /// Returns what the strategy makes of the conversation right now.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn trace(&self, identity: &Identity) -> Result<Trace> {
        let namespace = self.gate(identity, "trace")?;
        if self.keeps_nothing() {
            return Ok(Trace { strategy: Strategy::None, ..Trace::default() });
        }
        self.traced(identity, &namespace).await
    }

    /// Lists conversations, of all callers unless the filter narrows it. The caller checks permissions.
    ///
    /// # Errors
    /// `Invalid`, `Store`.
    pub async fn sessions(&self, filter: &ConversationFilter) -> Result<ConversationPage> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(ConversationError::Closed);
        }
        self.conversations(filter).await
    }

    /// Drops this process's cached conversations of a user after their rows were deleted by other means. Reads in
    /// flight are not cached either, and a summary in flight is discarded.
    pub fn forgotten(&self, tenant: &str, user: &str) {
        for namespace in self.shared().hot.forget_user(tenant, user) {
            self.0.worker.forgotten(&namespace);
        }
    }

    /// Removes a conversation with everything about it, and returns the number of its turns. Also removes an unreadable
    /// one.
    ///
    /// # Errors
    /// `Store`.
    pub async fn forget(&self, identity: &Identity) -> Result<u64> {
        let namespace = self.gate(identity, "forget")?;
        self.erase(identity, &namespace).await
    }

    /// Summarises the due turns now, without waiting for the next attempt. Ends when nothing is due or `within` has
    /// passed. Returns the number of turns that still wait.
    ///
    /// # Errors
    /// `Corrupt`, `Store`. A failing summarizer is not an error: see the health.
    pub async fn summarise(&self, identity: &Identity, within: Duration) -> Result<u64> {
        self.gate(identity, "fold")?;
        self.0.worker.summarise(identity, within).await
    }

    async fn patch(&self, identity: &Identity, namespace: &Namespace) -> Result<LlmContextPatch> {
        if self.keeps_nothing() {
            return Ok(LlmContextPatch { strategy: Strategy::None, ..LlmContextPatch::default() });
        }
        let shared = self.shared();
        self.ask(identity, namespace, |cached| hot_tier::view(&shared.config, shared.counter, cached)).await
    }
}
