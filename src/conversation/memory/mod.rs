//! The API of the conversation memory.

mod add;
mod list;
mod pin;
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
use helmdeck_memory::{Namespace, Store, StoreError};

use crate::config::{Config, Strategy, TokenCounter};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::hot_tier::{CachedConversation, HotTier};
use crate::identity::Identity;
use crate::metrics::{Counters, Metrics};
use crate::patch::LlmContextPatch;
use crate::render::{Format, RenderedContext};
use crate::rows::{Rows, StoredState};
use crate::shared::Shared;
use crate::strategies;
use crate::summarizer::Summarizer;
use crate::tokens::Counter;
use crate::worker::{Due, Worker};

/// Turns of so many bytes are counted by a tokenizer on a blocking thread.
const INLINE_BYTES: u64 = 16 << 10;

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

helmdeck_core::redacted_debug!(Dependencies, this => summarizer = this.summarizer.is_some());

/// The conversations of many callers, in one store. Cheap to clone; clones share one memory.
///
/// Every method first returns `Closed` after [`ConversationMemory::close`]. Then it refuses an
/// incomplete identity with `IdentityRequired` and one event. Only then it reads or writes.
#[derive(Clone)]
pub struct ConversationMemory(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    worker: Worker,
    closed: AtomicBool,
}

helmdeck_core::redacted_debug!(ConversationMemory, this => strategy = this.shared().config.strategy);

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

    /// Returns whether there are summaries, and so a health. What an earlier strategy left doesn't
    /// count.
    fn summarises(&self) -> bool {
        self.shared().config.strategy == Strategy::RollingSummary
    }

    fn health_of(&self, state: &StoredState) -> Health {
        if self.summarises() {
            state.checkpoint.health
        } else {
            Health::Healthy
        }
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
            .ask(namespace, |cached| {
                ask(cached).map(|answer| (answer, cached.backlog(&shared.config) > 0))
            })
            .await?;
        if due {
            self.0.worker.wake(identity, Due::Summarise);
        }
        Ok(answer)
    }

    /// Opens a memory, within a tokio runtime with time: the worker runs on it until
    /// [`Self::close`].
    ///
    /// # Errors
    /// `SummarizerRequired` for `rolling_summary` without a summarizer; `Invalid` for invalid
    /// settings.
    pub fn open(config: Config, dependencies: Dependencies) -> Result<Self> {
        Self::open_as(config, dependencies, true)
    }

    /// Opens a memory for a short-lived process, without background work.
    ///
    /// Only [`Self::summarise`] summarises turns, and nothing is swept. Long-lived processes do
    /// that work, so that no model call runs without a waiter.
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
        let Dependencies {
            store,
            events,
            clock,
            summarizer,
        } = dependencies;
        let mut config = config;
        if store.changes().is_some() {
            // Replicas share the store: a turn that another one acknowledged is in the next context
            // here.
            config.hot_for = Duration::ZERO;
        }
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
        Ok(Self(Arc::new(Inner {
            shared,
            worker,
            closed: AtomicBool::new(false),
        })))
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

    /// Returns the context of the next model call. The budget holds for its texts.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn context(&self, identity: &Identity) -> Result<LlmContextPatch> {
        let namespace = self.gate(identity, "context")?;
        self.texts(identity, &namespace).await
    }

    /// Returns the context of the next model call in a format. The budget holds for what is
    /// rendered.
    ///
    /// # Errors
    /// As [`Self::context`].
    pub async fn render(&self, identity: &Identity, format: Format) -> Result<RenderedContext> {
        let namespace = self.gate(identity, "context")?;
        let (patch, _) = self.rendered(identity, &namespace, format).await?;
        Ok(RenderedContext { format, patch })
    }

    /// Returns the tokens of the result of [`Self::context`].
    ///
    /// # Errors
    /// As [`Self::context`].
    pub async fn estimate_tokens(&self, identity: &Identity) -> Result<u64> {
        let namespace = self.gate(identity, "estimate_tokens")?;
        Ok(self.texts(identity, &namespace).await?.tokens)
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
        self.ask(identity, &namespace, |cached| {
            Some(self.health_of(&cached.state))
        })
        .await
    }

    /// Stops summarising and sweeping, and cancels requests to the summarizer.
    ///
    /// Waits at most `within` until all have stopped. The store stays open. Later calls of other
    /// methods return `Closed`; closing again is fine.
    pub async fn close(&self, within: Duration) {
        self.0.closed.store(true, Ordering::Release);
        self.0.worker.close(within).await;
    }

    /// Drops this process's cached conversations of a user after their rows were deleted by other
    /// means.
    ///
    /// Reads in flight are not cached either, and a summary in flight is discarded.
    pub fn forgotten(&self, tenant: &str, user: &str) {
        for namespace in self.shared().hot.forget_user(tenant, user) {
            self.0.worker.forgotten(&namespace);
        }
    }

    /// Summarises the due turns now, without waiting for the next attempt.
    ///
    /// Ends when nothing is due or `within` has passed. Returns the number of turns that still
    /// wait. In a memory that was opened briefly, nothing is summarised after that time.
    ///
    /// # Errors
    /// `Corrupt`, `Store`. A failing summarizer is not an error: see the health.
    pub async fn summarise(&self, identity: &Identity, within: Duration) -> Result<u64> {
        self.gate(identity, "fold")?;
        self.0.worker.summarise(identity, within).await
    }

    /// Returns a context whose budget holds for its texts. Their tokens are known, so it is made
    /// where they are.
    async fn texts(&self, identity: &Identity, namespace: &Namespace) -> Result<LlmContextPatch> {
        let shared = self.shared();
        let patch = |cached: &CachedConversation| {
            strategies::patch(&shared.config, shared.counter, cached, None)
        };
        if self.keeps_nothing() {
            return Ok(patch(&CachedConversation::default()));
        }
        self.ask(identity, namespace, |cached| {
            cached.is_enough(&shared.config).then(|| patch(cached))
        })
        .await
    }

    /// Returns a context whose budget holds for what is rendered, and the conversation that it is
    /// of.
    ///
    /// The conversation is copied, because what is rendered is counted, which may be slow.
    async fn rendered(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        format: Format,
    ) -> Result<(LlmContextPatch, CachedConversation)> {
        let shared = Arc::clone(self.shared());
        let enough =
            |cached: &CachedConversation| cached.is_enough(&shared.config).then(|| cached.clone());
        let conversation = match self.keeps_nothing() {
            true => CachedConversation::default(),
            false => self.ask(identity, namespace, enough).await?,
        };
        let slow = shared.config.tokens != TokenCounter::Chars && conversation.bytes > INLINE_BYTES;
        let view = move || {
            (
                strategies::patch(&shared.config, shared.counter, &conversation, Some(format)),
                conversation,
            )
        };
        if slow {
            Ok(tokio::task::spawn_blocking(view)
                .await
                .map_err(StoreError::unavailable)?)
        } else {
            Ok(view())
        }
    }
}
