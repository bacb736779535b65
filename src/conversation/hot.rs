//! What conversations are in use, held in memory within a cap.
//!
//! What is held is a copy; the rows decide. It is taken for true for `hot_for` after it was read, or written by this process; then head
//! and checkpoint are read again. Every write expects the versions that it read, so a copy that is behind costs a retry and never a turn.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use helmdeck_memory::Namespace;
use moka::sync::Cache;

use crate::config::{Config, Strategy};
use crate::patch::LlmContextPatch;
use crate::rows::{Checkpoint, Head, Kept, Loaded, Replaced, State};
use crate::strategies;
use crate::tokens::Counter;

/// What a conversation takes in memory besides its texts.
const SLOT_BYTES: u64 = 1024;
/// What a turn takes besides its texts.
const TURN_BYTES: u64 = 320;
/// What a member that came with a snapshot takes besides its texts.
const MEMBER_BYTES: usize = 96;

/// A conversation as it was read: head, checkpoint, and as many of the newest turns as anybody wants to see.
#[derive(Debug, Clone)]
pub(crate) struct CachedConversation {
    /// Head and checkpoint.
    pub(crate) state: State,
    /// The newest turns that are not in the summary, oldest first.
    pub(crate) turns: VecDeque<Kept>,
    /// How many turns are not in the summary and older than those.
    pub(crate) below: u64,
    /// How many of the newest turns do not open.
    pub(crate) unreadable: u64,
    /// What the summary takes.
    pub(crate) summary_tokens: u64,
    /// What the opening takes, if it is shown.
    opening_tokens: u64,
    /// The bytes of whatever texts the checkpoint has.
    checkpoint_bytes: u64,
    /// What `turns` take.
    tokens: u64,
    /// The bytes of `turns`.
    bytes: u64,
    /// When it was last known to be true.
    checked_at: Duration,
}

impl CachedConversation {
    /// Holds what was read; `below` is how many turns there are below what was read that are not in the summary.
    pub(crate) fn new(config: &Config, counter: Counter, loaded: Loaded, below: u64, now: Duration) -> Self {
        let mut cached = Self {
            state: loaded.state,
            turns: loaded.turns.into(),
            below,
            unreadable: loaded.unreadable,
            summary_tokens: 0,
            opening_tokens: 0,
            checkpoint_bytes: 0,
            tokens: 0,
            bytes: 0,
            checked_at: now,
        };
        cached.tokens = cached.turns.iter().map(|kept| kept.tokens).fold(0, u64::saturating_add);
        cached.bytes = cached.turns.iter().map(|kept| kept.bytes).sum();
        cached.weigh_checkpoint(counter);
        cached.drop_folded(config);
        cached.trim(config);
        cached
    }

    fn weigh_checkpoint(&mut self, counter: Counter) {
        let checkpoint = &self.state.checkpoint;
        self.summary_tokens = counter.count(&checkpoint.summary);
        let shown = checkpoint.opening.as_deref().filter(|_| checkpoint.covers_through > 0);
        self.opening_tokens = shown.map_or(0, |opening| counter.count(opening));
        let other = checkpoint.other.iter().map(|(name, value)| name.len() + value.as_str().len() + MEMBER_BYTES);
        let base = checkpoint.base.as_ref().map_or(0, |base| base.summary.len());
        let opening = checkpoint.opening.as_ref().map_or(0, String::len);
        self.checkpoint_bytes = (checkpoint.summary.len() + base + opening + other.sum::<usize>()) as u64;
    }

    /// Returns what summary and opening take.
    pub(crate) const fn fixed(&self) -> u64 {
        self.summary_tokens.saturating_add(self.opening_tokens)
    }

    /// Returns how many turns there are that open and are not in the summary.
    pub(crate) fn raw_turns(&self) -> u64 {
        self.below.saturating_add(self.turns.len() as u64)
    }

    /// Returns how many of them are due to be folded.
    pub(crate) fn backlog(&self, config: &Config) -> u64 {
        if config.strategy != Strategy::RollingSummary {
            return 0;
        }
        let newest_first = self.turns.iter().rev().map(|kept| kept.tokens);
        strategies::backlog(config, self.fixed(), self.raw_turns(), newest_first)
    }

    /// Says whether enough turns are held for whatever may be asked: all, or more than fit.
    pub(crate) fn is_enough(&self, config: &Config) -> bool {
        self.below == 0 || Self::overflows(config, self.turns.len(), self.tokens)
    }

    /// Says whether so many newest turns are more than anybody is shown, whatever the summary takes.
    fn overflows(config: &Config, turns: usize, tokens: u64) -> bool {
        config.budget_tokens > 0 && turns > config.recent_turns && tokens > config.budget_tokens
    }

    /// Lets go of the oldest turns that nobody will be shown.
    fn trim(&mut self, config: &Config) {
        while let Some(oldest) = self.turns.front() {
            let (tokens, bytes) = (oldest.tokens, oldest.bytes);
            if !Self::overflows(config, self.turns.len() - 1, self.tokens.saturating_sub(tokens)) {
                return;
            }
            self.turns.pop_front();
            self.below += 1;
            self.tokens -= tokens;
            self.bytes -= bytes;
        }
    }

    /// Lets go of the turns that are in the summary.
    fn drop_folded(&mut self, config: &Config) {
        let oldest = strategies::oldest_raw(config.strategy, &self.state.head, self.state.checkpoint.covers_through);
        while self.turns.front().is_some_and(|kept| kept.id.seq < oldest) {
            if let Some(kept) = self.turns.pop_front() {
                self.tokens -= kept.tokens;
                self.bytes -= kept.bytes;
            }
        }
    }

    /// Takes in the checkpoint of a conversation that was begun, or had none.
    pub(crate) fn begun(&mut self, counter: Counter, checkpoint: Checkpoint, version: u64) {
        self.state.checkpoint = checkpoint;
        self.state.checkpoint_version = version;
        self.weigh_checkpoint(counter);
    }

    /// Takes in a turn that was stored.
    pub(crate) fn added(&mut self, config: &Config, head: Head, done: &Replaced, kept: Kept, now: Duration) {
        self.state.head = head;
        self.state.head_version = done.head_version;
        self.state.touched_at = Some(done.at);
        self.tokens = self.tokens.saturating_add(kept.tokens);
        self.bytes += kept.bytes;
        self.turns.push_back(kept);
        self.checked_at = now;
        self.trim(config);
    }

    /// Takes in a checkpoint that was stored in the place of the one that is held; `false` if this needs another look at the rows.
    fn replaced(&mut self, config: &Config, counter: Counter, checkpoint: &Checkpoint, version: u64) -> bool {
        self.state.checkpoint_version.checked_add(1) == Some(version)
            && checkpoint.generation == self.state.checkpoint.generation
            && self.cover(config, counter, checkpoint, version)
    }

    /// Takes in what others wrote after what is held; `false` if this needs a look at more rows.
    fn caught_up(&mut self, config: &Config, counter: Counter, loaded: &Loaded, now: Duration) -> bool {
        let (mine, new) = (&self.state.head, &loaded.state.head);
        let follows = mine.generation == new.generation
            && mine.first == new.first
            && mine.seq <= new.seq
            // Each turn replaces the head once. A conversation that was forgotten and begun anew starts at a version of chance.
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
        let covers = version == self.state.checkpoint_version || self.cover(config, counter, checkpoint, version);
        self.state = loaded.state.clone();
        self.checked_at = now;
        self.trim(config);
        covers && self.is_enough(config)
    }

    fn cover(&mut self, config: &Config, counter: Counter, checkpoint: &Checkpoint, version: u64) -> bool {
        let before = strategies::oldest_raw(config.strategy, &self.state.head, self.state.checkpoint.covers_through);
        let after = strategies::oldest_raw(config.strategy, &self.state.head, checkpoint.covers_through);
        self.state.checkpoint = checkpoint.clone();
        self.state.checkpoint_version = version;
        self.weigh_checkpoint(counter);
        if after < before || (after > before && (self.state.head.has_holes() || self.unreadable > 0) && self.below > 0)
        {
            return false;
        }
        // Without holes there are as many turns as numbers.
        self.below = self.below.saturating_sub(after - before);
        self.drop_folded(config);
        self.is_enough(config)
    }

    fn weight(&self) -> u64 {
        let texts = self.bytes + self.checkpoint_bytes;
        SLOT_BYTES + texts + TURN_BYTES * self.turns.len() as u64
    }
}

/// One conversation in memory.
pub(crate) struct Slot {
    /// This process's writers of the conversation, one after the other: they would only be in each other's way at the store.
    pub(crate) turnstile: Arc<tokio::sync::Mutex<()>>,
    /// What is held. Nobody waits for anything else while it is locked.
    held: Mutex<Held>,
    /// What the cache takes it to weigh.
    weight: AtomicU32,
}

#[derive(Default)]
struct Held {
    /// Grows with every write of this process, so that what was read before one is not taken for what is there after it.
    epoch: u64,
    cached: Option<CachedConversation>,
}

impl Slot {
    fn new() -> Arc<Self> {
        let weight = AtomicU32::new(SLOT_BYTES as u32);
        Arc::new(Self { turnstile: Arc::default(), held: Mutex::default(), weight })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    /// Asks what is held, if it is known to be true now.
    pub(crate) fn fresh<T>(
        &self,
        config: &Config,
        now: Duration,
        ask: impl FnOnce(&CachedConversation) -> Option<T>,
    ) -> Option<T> {
        let held = self.held();
        let cached = held.cached.as_ref()?;
        (now.saturating_sub(cached.checked_at) < config.hot_for).then(|| ask(cached)).flatten()
    }

    /// Returns head and checkpoint as they are held, fresh or not: for a write, which finds out by itself.
    pub(crate) fn state(&self) -> Option<State> {
        self.held().cached.as_ref().map(|cached| cached.state.clone())
    }

    /// Says whether anything is held, fresh or not.
    pub(crate) fn is_held(&self) -> bool {
        self.held().cached.is_some()
    }

    /// Returns a mark to give back with what is read from now on.
    pub(crate) fn epoch(&self) -> u64 {
        self.held().epoch
    }

    /// Says that what is held is true, if head and checkpoint are at these versions; `None` if they are not, or nothing is held.
    pub(crate) fn confirm<T>(
        &self,
        state: &State,
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

    /// Takes in what others wrote meanwhile, and asks again; `None` if that needs a look at more rows.
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
        if !held.cached.as_mut()?.caught_up(config, counter, loaded, now) {
            held.cached = None;
        }
        held.cached.as_ref().and_then(ask)
    }

    /// Holds what was read since the mark, unless this process wrote meanwhile.
    fn keep(&self, epoch: u64, cached: CachedConversation) {
        let mut held = self.held();
        if held.epoch == epoch {
            held.cached = Some(cached);
        }
    }

    /// Changes what is held after a write by this process; if it is not what the write began with (`head_version`), or `change` says
    /// `false`, it is dropped.
    fn change(&self, head_version: Option<u64>, change: impl FnOnce(&mut CachedConversation) -> bool) {
        let mut held = self.held();
        held.epoch += 1;
        let kept = held.cached.as_mut().is_some_and(|cached| {
            head_version.is_none_or(|version| cached.state.head_version == version) && change(cached)
        });
        if !kept {
            held.cached = None;
        }
    }

    fn drop_hold(&self) {
        self.change(None, |_| false);
    }

    fn weigh(&self) -> u32 {
        let weight = self.held().cached.as_ref().map_or(SLOT_BYTES, CachedConversation::weight);
        u32::try_from(weight).unwrap_or(u32::MAX)
    }
}

/// The conversations in use.
pub(crate) struct Hot {
    slots: Cache<Namespace, Arc<Slot>>,
}

impl Hot {
    pub(crate) fn new(bytes: u64) -> Self {
        let slots = Cache::builder()
            .max_capacity(bytes)
            .weigher(|namespace: &Namespace, slot: &Arc<Slot>| {
                let name = namespace.tenant.len() + namespace.subject.len();
                let session = namespace.session.as_deref().map_or(0, str::len);
                slot.weight.load(Ordering::Relaxed).saturating_add(u32::try_from(name + session).unwrap_or(u32::MAX))
            })
            .build();
        Self { slots }
    }

    /// Returns the place of a conversation, which may be empty.
    pub(crate) fn slot(&self, namespace: &Namespace) -> Arc<Slot> {
        match self.slots.get(namespace) {
            Some(slot) => slot,
            None => self.slots.get_with_by_ref(namespace, Slot::new),
        }
    }

    /// Holds what was read, unless this process wrote to the conversation since `epoch`.
    pub(crate) fn keep(&self, namespace: &Namespace, slot: &Arc<Slot>, epoch: u64, cached: CachedConversation) {
        slot.keep(epoch, cached);
        self.settle(namespace, slot);
    }

    /// Changes what is held of a conversation after a write by this process that began at a version of the head.
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

    /// Tells the cache what the conversation weighs by now. If another place was made meanwhile, because this one was pushed out, that one
    /// goes: it may hold what was true before the write.
    fn settle(&self, namespace: &Namespace, slot: &Arc<Slot>) {
        let (weight, told) = (slot.weigh(), slot.weight.load(Ordering::Relaxed));
        let current = self.slots.get(namespace);
        let is_current = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, slot));
        if let Some(current) = current.filter(|_| !is_current) {
            current.drop_hold();
        }
        if !is_current || weight.abs_diff(told) > told / 8 {
            slot.weight.store(weight, Ordering::Relaxed);
            self.slots.insert(namespace.clone(), Arc::clone(slot));
        }
    }

    /// Drops what is held of a conversation.
    pub(crate) fn forget(&self, namespace: &Namespace) {
        if let Some(slot) = self.slots.get(namespace) {
            slot.drop_hold();
            self.settle(namespace, &slot);
        }
    }

    /// Drops what is held of all conversations of a user, and says which these are.
    pub(crate) fn forget_user(&self, tenant: &str, user: &str) -> Vec<Namespace> {
        let all = self.slots.iter().map(|(namespace, _)| namespace);
        let theirs = all.filter(|namespace| *namespace.tenant == *tenant && *namespace.subject == *user);
        let theirs: Vec<Namespace> = theirs.map(|namespace| Namespace::clone(&namespace)).collect();
        for namespace in &theirs {
            self.forget(namespace);
        }
        theirs
    }

    /// Drops what a place holds, also if it was pushed out of the cache meanwhile.
    pub(crate) fn forget_slot(&self, namespace: &Namespace, slot: &Arc<Slot>) {
        slot.drop_hold();
        self.settle(namespace, slot);
    }

    /// Puts a checkpoint that this process stored, and its version, in the place of the one before it, if the conversation is held.
    pub(crate) fn replaced(
        &self,
        config: &Config,
        counter: Counter,
        namespace: &Namespace,
        checkpoint: &Checkpoint,
        version: u64,
    ) {
        if let Some(slot) = self.slots.get(namespace) {
            slot.change(None, |cached| cached.replaced(config, counter, checkpoint, version));
            self.settle(namespace, &slot);
        }
    }

    /// Returns what is held in all, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.run_pending_tasks();
        self.slots.weighted_size()
    }
}

/// Returns what a model is shown, `None` if more turns are needed for it than are held.
pub(crate) fn view(config: &Config, counter: Counter, cached: &CachedConversation) -> Option<LlmContextPatch> {
    cached.is_enough(config).then(|| strategies::patch(config, counter, cached))
}
