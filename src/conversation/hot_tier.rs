//! Hot tier: conversations in use, cached in memory under a limit.
//!
//! Entries are copies; the database rows are the source of truth. A copy is trusted for `hot_for`
//! after this process read or wrote it; then head and checkpoint are read again. Every write
//! expects the versions that it read, so an outdated copy costs a retry, never a turn.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use helmdeck_memory::Namespace;
use moka::sync::Cache;

use crate::config::{Config, Strategy};
use crate::rows::{Checkpoint, Head, Loaded, Replaced, StoredState, StoredTurn};
use crate::strategies::due;
use crate::tokens::Counter;

/// Memory of a conversation besides its texts.
const SLOT_BYTES: u64 = 1024;
/// Memory of a turn besides its texts.
const TURN_BYTES: u64 = 320;
/// Memory of an unknown snapshot member besides its texts.
const MEMBER_BYTES: usize = 96;

/// Cached copy of a conversation: head, checkpoint and the newest turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct CachedConversation {
    pub(crate) state: StoredState,
    /// The newest turns that are not in the summary, oldest first.
    pub(crate) turns: VecDeque<StoredTurn>,
    /// Number of unsummarised turns older than those.
    pub(crate) below: u64,
    /// Number of the newest turns that are unreadable.
    pub(crate) unreadable: u64,
    /// Tokens of a context without turns.
    fixed: u64,
    /// Bytes of the checkpoint's texts.
    checkpoint_bytes: u64,
    /// Tokens of `turns`.
    tokens: u64,
    /// Bytes of `turns`.
    pub(crate) bytes: u64,
    /// Time of the last check against the store.
    checked_at: Duration,
}

impl CachedConversation {
    /// Caches what was read; `below` is the number of older unsummarised turns.
    pub(crate) fn new(
        config: &Config,
        counter: Counter,
        loaded: Loaded,
        below: u64,
        now: Duration,
    ) -> Self {
        let mut cached = Self {
            state: loaded.state,
            turns: loaded.turns.into(),
            below,
            unreadable: loaded.unreadable,
            fixed: 0,
            checkpoint_bytes: 0,
            tokens: 0,
            bytes: 0,
            checked_at: now,
        };
        cached.tokens = cached
            .turns
            .iter()
            .map(|kept| kept.tokens)
            .fold(0, u64::saturating_add);
        cached.bytes = cached.turns.iter().map(|kept| kept.bytes).sum();
        cached.weigh_checkpoint(counter);
        cached.drop_summarised(config);
        cached.trim(config);
        cached
    }

    fn weigh_checkpoint(&mut self, counter: Counter) {
        let checkpoint = &self.state.checkpoint;
        self.fixed = checkpoint.fixed(counter);
        let other = checkpoint
            .other
            .iter()
            .map(|(name, value)| name.len() + value.as_str().len() + MEMBER_BYTES);
        let base = checkpoint
            .base
            .as_ref()
            .map_or(0, |base| base.summary.len());
        let goals = [&checkpoint.opening, &checkpoint.pinned]
            .into_iter()
            .flatten()
            .map(String::len);
        let texts = checkpoint.summary.len() + base + goals.sum::<usize>();
        self.checkpoint_bytes = (texts + other.sum::<usize>()) as u64;
    }

    /// Returns the number of readable unsummarised turns.
    pub(crate) fn raw_turns(&self) -> u64 {
        self.below.saturating_add(self.turns.len() as u64)
    }

    /// Returns how many of them are due to be summarised.
    pub(crate) fn backlog(&self, config: &Config) -> u64 {
        if config.strategy != Strategy::RollingSummary {
            return 0;
        }
        let newest_first = self.turns.iter().rev().map(StoredTurn::room);
        due::backlog(config, self.fixed, self.raw_turns(), newest_first)
    }

    /// Returns whether the cached turns answer any question: they are all there, or more than fit.
    pub(crate) fn is_enough(&self, config: &Config) -> bool {
        self.below == 0 || Self::overflows(config, self.turns.len(), self.tokens)
    }

    /// Returns whether that many turns exceed any context, whatever the summary takes.
    fn overflows(config: &Config, turns: usize, tokens: u64) -> bool {
        config.budget_tokens > 0 && turns > config.recent_turns && tokens > config.budget_tokens
    }

    /// Drops the oldest turns that no context shows.
    fn trim(&mut self, config: &Config) {
        while let Some(oldest) = self.turns.front() {
            let (tokens, bytes) = (oldest.tokens, oldest.bytes);
            if !Self::overflows(
                config,
                self.turns.len() - 1,
                self.tokens.saturating_sub(tokens),
            ) {
                return;
            }
            self.turns.pop_front();
            self.below += 1;
            self.tokens -= tokens;
            self.bytes -= bytes;
        }
    }

    /// Drops summarised turns.
    fn drop_summarised(&mut self, config: &Config) {
        let oldest = due::oldest_raw(
            config.strategy,
            &self.state.head,
            self.state.checkpoint.covers_through,
        );
        while self.turns.front().is_some_and(|kept| kept.id.seq < oldest) {
            if let Some(kept) = self.turns.pop_front() {
                self.tokens -= kept.tokens;
                self.bytes -= kept.bytes;
            }
        }
    }

    /// Sets the checkpoint of a new conversation.
    pub(crate) fn started(&mut self, counter: Counter, checkpoint: Checkpoint, version: u64) {
        self.state.checkpoint = checkpoint;
        self.state.checkpoint_version = version;
        self.weigh_checkpoint(counter);
    }

    /// Adds a stored turn.
    pub(crate) fn added(
        &mut self,
        config: &Config,
        head: Head,
        done: &Replaced,
        kept: StoredTurn,
        now: Duration,
    ) {
        self.state.head = head;
        self.state.head_version = done.head_version;
        self.state.touched_at = Some(done.at);
        self.tokens = self.tokens.saturating_add(kept.tokens);
        self.bytes += kept.bytes;
        self.turns.push_back(kept);
        self.checked_at = now;
        self.trim(config);
    }

    /// Sets a checkpoint that this process stored; `false` if the copy must be read again.
    fn replaced(
        &mut self,
        config: &Config,
        counter: Counter,
        checkpoint: &Checkpoint,
        version: u64,
    ) -> bool {
        self.state.checkpoint_version.checked_add(1) == Some(version)
            && checkpoint.generation == self.state.checkpoint.generation
            && self.cover(config, counter, checkpoint, version)
    }

    /// Adds what other processes wrote; `false` if the copy must be read again.
    fn caught_up(
        &mut self,
        config: &Config,
        counter: Counter,
        loaded: &Loaded,
        now: Duration,
    ) -> bool {
        let (mine, new) = (&self.state.head, &loaded.state.head);
        let follows = mine.generation == new.generation
            && mine.first == new.first
            && mine.seq <= new.seq
            // Each turn replaces the head once. A conversation that was forgotten starts again at a
            // random version.
            && self.state.head_version.checked_add(new.seq - mine.seq) == Some(loaded.state.head_version)
            && loaded.from <= mine.seq + 1
            && loaded.unreadable == 0
            && self.state.head_version != 0
            && self.state.touched_at.is_some();
        if !follows {
            return false;
        }
        let known = mine.seq;
        let fresh = || loaded.turns.iter().filter(|kept| kept.id.seq > known);
        if mine.turns + fresh().count() as u64 != new.turns {
            return false;
        }
        for kept in fresh() {
            self.tokens = self.tokens.saturating_add(kept.tokens);
            self.bytes += kept.bytes;
            self.turns.push_back(kept.clone());
        }
        let (checkpoint, version) = (&loaded.state.checkpoint, loaded.state.checkpoint_version);
        let covers = version == self.state.checkpoint_version
            || self.cover(config, counter, checkpoint, version);
        self.state = loaded.state.clone();
        self.checked_at = now;
        self.trim(config);
        covers && self.is_enough(config)
    }

    fn cover(
        &mut self,
        config: &Config,
        counter: Counter,
        checkpoint: &Checkpoint,
        version: u64,
    ) -> bool {
        let before = due::oldest_raw(
            config.strategy,
            &self.state.head,
            self.state.checkpoint.covers_through,
        );
        let after = due::oldest_raw(config.strategy, &self.state.head, checkpoint.covers_through);
        self.state.checkpoint = checkpoint.clone();
        self.state.checkpoint_version = version;
        self.weigh_checkpoint(counter);
        if after < before
            || (after > before
                && (self.state.head.has_holes() || self.unreadable > 0)
                && self.below > 0)
        {
            return false;
        }
        // Without deleted turns there are as many turns as numbers.
        self.below = self.below.saturating_sub(after - before);
        self.drop_summarised(config);
        self.is_enough(config)
    }

    fn weight(&self) -> u64 {
        let texts = self.bytes + self.checkpoint_bytes;
        SLOT_BYTES + texts + TURN_BYTES * self.turns.len() as u64
    }
}

/// Slot of one conversation in the hot tier.
pub(crate) struct Slot {
    /// Lock for this process's writers of the conversation, which would conflict in the store.
    pub(crate) write_lock: Arc<tokio::sync::Mutex<()>>,
    /// The copy. No holder of this lock waits for anything else.
    held: Mutex<SlotState>,
    /// The weight that the cache knows.
    weight: AtomicU32,
}

#[derive(Default)]
struct SlotState {
    /// Grows with every write of this process: what was read before a write is not cached after it.
    epoch: u64,
    cached: Option<CachedConversation>,
}

impl Slot {
    fn new() -> Arc<Self> {
        let weight = AtomicU32::new(SLOT_BYTES as u32);
        Arc::new(Self {
            write_lock: Arc::default(),
            held: Mutex::default(),
            weight,
        })
    }

    fn held(&self) -> MutexGuard<'_, SlotState> {
        self.held.lock()
    }

    /// Queries the copy if it is fresh.
    pub(crate) fn fresh<T>(
        &self,
        config: &Config,
        now: Duration,
        ask: impl FnOnce(&CachedConversation) -> Option<T>,
    ) -> Option<T> {
        let held = self.held();
        let cached = held.cached.as_ref()?;
        (now.saturating_sub(cached.checked_at) < config.hot_for)
            .then(|| ask(cached))
            .flatten()
    }

    /// Returns the cached head and checkpoint, fresh or not: for a write, which checks the
    /// versions.
    pub(crate) fn state(&self) -> Option<StoredState> {
        self.held()
            .cached
            .as_ref()
            .map(|cached| cached.state.clone())
    }

    /// Returns whether there is a copy, fresh or not.
    pub(crate) fn is_held(&self) -> bool {
        self.held().cached.is_some()
    }

    /// Returns the epoch, to pass to `keep` with what is read from now on.
    pub(crate) fn epoch(&self) -> u64 {
        self.held().epoch
    }

    /// Queries the copy if it has these versions, and marks it as checked.
    pub(crate) fn confirm<T>(
        &self,
        state: &StoredState,
        now: Duration,
        ask: impl FnOnce(&CachedConversation) -> Option<T>,
    ) -> Option<T> {
        let mut held = self.held();
        let cached = held.cached.as_mut()?;
        let same = cached.state.head_version == state.head_version
            && cached.state.checkpoint_version == state.checkpoint_version;
        if !same {
            return None;
        }
        cached.checked_at = now;
        ask(cached)
    }

    /// Adds what other processes wrote and queries the copy; `None` if more rows must be read.
    pub(crate) fn catch_up<T>(
        &self,
        (config, counter): (&Config, Counter),
        epoch: u64,
        loaded: &Loaded,
        now: Duration,
        ask: impl FnOnce(&CachedConversation) -> Option<T>,
    ) -> Option<T> {
        let mut held = self.held();
        if held.epoch != epoch {
            return None;
        }
        if !held
            .cached
            .as_mut()?
            .caught_up(config, counter, loaded, now)
        {
            held.cached = None;
        }
        held.cached.as_ref().and_then(ask)
    }

    /// Caches what was read in an epoch, unless this process wrote since.
    fn keep(&self, epoch: u64, cached: CachedConversation) {
        let mut held = self.held();
        if held.epoch == epoch {
            held.cached = Some(cached);
        }
    }

    /// Changes the copy after a write of this process.
    ///
    /// Drops it if the write began at another head version or `change` returns `false`.
    fn change(
        &self,
        head_version: Option<u64>,
        change: impl FnOnce(&mut CachedConversation) -> bool,
    ) {
        let mut held = self.held();
        held.epoch += 1;
        let kept = held.cached.as_mut().is_some_and(|cached| {
            head_version.is_none_or(|version| cached.state.head_version == version)
                && change(cached)
        });
        if !kept {
            held.cached = None;
        }
    }

    fn drop_hold(&self) {
        self.change(None, |_| false);
    }

    fn weigh(&self) -> u32 {
        let weight = self
            .held()
            .cached
            .as_ref()
            .map_or(SLOT_BYTES, CachedConversation::weight);
        u32::try_from(weight).unwrap_or(u32::MAX)
    }
}

/// Cache of the conversations in use.
pub(crate) struct HotTier {
    slots: Cache<Namespace, Arc<Slot>>,
}

impl HotTier {
    pub(crate) fn new(bytes: u64) -> Self {
        let slots = Cache::builder()
            .max_capacity(bytes)
            .weigher(|namespace: &Namespace, slot: &Arc<Slot>| {
                let name = namespace.tenant.len() + namespace.subject.len();
                let session = namespace.session.as_deref().map_or(0, str::len);
                slot.weight
                    .load(Ordering::Relaxed)
                    .saturating_add(u32::try_from(name + session).unwrap_or(u32::MAX))
            })
            .build();
        Self { slots }
    }

    /// Returns the slot of a conversation, which may be empty.
    pub(crate) fn slot(&self, namespace: &Namespace) -> Arc<Slot> {
        match self.slots.get(namespace) {
            Some(slot) => slot,
            None => self.slots.get_with_by_ref(namespace, Slot::new),
        }
    }

    /// Caches what was read in an epoch, unless this process wrote since.
    pub(crate) fn keep(
        &self,
        namespace: &Namespace,
        slot: &Arc<Slot>,
        epoch: u64,
        cached: CachedConversation,
    ) {
        slot.keep(epoch, cached);
        self.settle(namespace, slot);
    }

    /// Changes the copy after a write of this process that began at a head version.
    pub(crate) fn change(
        &self,
        namespace: &Namespace,
        slot: &Arc<Slot>,
        head_version: u64,
        change: impl FnOnce(&mut CachedConversation) -> bool,
    ) {
        slot.change(Some(head_version), change);
        self.settle(namespace, slot);
    }

    /// Updates the weight in the cache.
    ///
    /// If the slot was evicted and another one exists, that one's copy is dropped: it may be older
    /// than the write.
    fn settle(&self, namespace: &Namespace, slot: &Arc<Slot>) {
        let (weight, known) = (slot.weigh(), slot.weight.load(Ordering::Relaxed));
        let current = self.slots.get(namespace);
        let is_current = current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, slot));
        if let Some(current) = current.filter(|_| !is_current) {
            current.drop_hold();
        }
        if !is_current || weight.abs_diff(known) > known / 8 {
            slot.weight.store(weight, Ordering::Relaxed);
            self.slots.insert(namespace.clone(), Arc::clone(slot));
        }
    }

    /// Drops the copy of a conversation.
    pub(crate) fn forget(&self, namespace: &Namespace) {
        if let Some(slot) = self.slots.get(namespace) {
            slot.drop_hold();
            self.settle(namespace, &slot);
        }
    }

    /// Drops the copies of all conversations of a user, and returns which these are.
    pub(crate) fn forget_user(&self, tenant: &str, user: &str) -> Vec<Namespace> {
        let all = self.slots.iter().map(|(namespace, _)| namespace);
        let theirs =
            all.filter(|namespace| *namespace.tenant == *tenant && *namespace.subject == *user);
        let theirs: Vec<Namespace> = theirs
            .map(|namespace| Namespace::clone(&namespace))
            .collect();
        for namespace in &theirs {
            self.forget(namespace);
        }
        theirs
    }

    /// Drops the copy in a slot, even if the slot was evicted.
    pub(crate) fn forget_slot(&self, namespace: &Namespace, slot: &Arc<Slot>) {
        slot.drop_hold();
        self.settle(namespace, slot);
    }

    /// Sets a checkpoint that this process stored, if the conversation is cached.
    pub(crate) fn replaced(
        &self,
        config: &Config,
        counter: Counter,
        namespace: &Namespace,
        checkpoint: &Checkpoint,
        version: u64,
    ) {
        if let Some(slot) = self.slots.get(namespace) {
            slot.change(None, |cached| {
                cached.replaced(config, counter, checkpoint, version)
            });
            self.settle(namespace, &slot);
        }
    }

    /// Returns the bytes of all copies.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.run_pending_tasks();
        self.slots.weighted_size()
    }
}
