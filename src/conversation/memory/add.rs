//! Adding a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_events::EventKind;
use helmdeck_memory::{Namespace, StoreError};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::ConversationMemory;
use crate::config::{OnOversize, Strategy, TokenCounter};
use crate::emit;
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::hot::Slot;
use crate::identity::Identity;
use crate::item::{Added, ItemId};
use crate::rows::{Fresh, Head, Kept, Once, Ops, State, lineage, random};
use crate::strategies;
use crate::turn::NewTurn;
use crate::wire;
use crate::worker::Due;

/// How long a write is tried again while others write to the same conversation.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_millis(64);
/// The bytes of a turn from which on its tokens are counted on a blocking thread, unless they are estimated.
const INLINE_BYTES: usize = 16 << 10;
/// The most bytes of a name that a caller gives to a turn.
const ONCE_BYTES: usize = 256;

/// A turn that is being added, with what must live until it is, also if nobody waits for it any more.
struct Attempt {
    memory: ConversationMemory,
    identity: Identity,
    namespace: Namespace,
    slot: Arc<Slot>,
    fresh: Fresh,
    /// The caller's name for it, and what stands for all that is to be added.
    once: Option<(String, String)>,
    as_admin: bool,
    /// Our turn among the writers of this process.
    _turnstile: OwnedMutexGuard<()>,
}

impl ConversationMemory {
    pub(super) async fn add(
        &self,
        identity: &Identity,
        mut turn: NewTurn,
        operation: &'static str,
        as_admin: bool,
    ) -> Result<Added> {
        let namespace = self.gate(identity, operation)?;
        let once = turn.once.take();
        if once.as_ref().is_some_and(|name| name.is_empty() || name.len() > ONCE_BYTES) {
            return Err(ConversationError::Invalid(format!("once must have 1 to {ONCE_BYTES} bytes")));
        }
        let once = once.map(|name| (name, digest(&turn)));
        let fresh = self.fresh(turn).await?;
        let tokens = fresh.tokens;
        if self.keeps_nothing() {
            return Ok(Added { id: None, tokens, repeated: false });
        }
        let shared_state = self.shared_state();
        let slot = shared_state.hot.slot(&namespace);
        let turnstile = Arc::clone(&slot.turnstile).lock_owned().await;
        let mut state = match slot.state() {
            Some(state) => shared_state.visible(state),
            None => shared_state.state(&namespace, &slot).await?,
        };
        let mut attempt = Attempt {
            memory: self.clone(),
            identity: identity.clone(),
            namespace,
            slot,
            fresh,
            once,
            as_admin,
            _turnstile: turnstile,
        };
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        let mut in_the_way = false;
        loop {
            let before = state.head_version;
            // Whoever calls may stop waiting at any time; what was begun is done to its end, and what is held stays true.
            let task = tokio::spawn(async move {
                let done = attempt.write(&state, in_the_way).await;
                (attempt, done)
            });
            let done;
            (attempt, done) = task.await.map_err(StoreError::unavailable)?;
            if let Some(id) = done? {
                return Ok(Added { id: Some(id), tokens, repeated: false });
            }
            if let Some((name, digest)) = &attempt.once
                && let Some(once) = shared_state.rows.once(&attempt.namespace, name).await?
            {
                shared_state.hot.forget_slot(&attempt.namespace, &attempt.slot);
                if !once.digest.is_empty() && once.digest != *digest {
                    return Err(ConversationError::OnceReused);
                }
                return Ok(Added { id: Some(once.id), tokens: once.tokens, repeated: true });
            }
            wait(give_up, &mut tries).await?;
            state = shared_state.catch_up(&attempt.namespace, &attempt.slot, |_| Some(())).await?.0;
            // Nobody else wrote, so it is a row that should not be there.
            in_the_way = state.head_version == before;
        }
    }

    /// Weighs a turn: its bytes and its tokens.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`, `Oversize`.
    pub(super) async fn fresh(&self, turn: NewTurn) -> Result<Fresh> {
        let shared_state = self.shared_state();
        let turn = Arc::new(turn.into_turn(shared_state.now()).map_err(ConversationError::Invalid)?);
        let json = wire::write_turn(&turn);
        let (size, limit) = (json.len() as u64, shared_state.config.max_turn_bytes);
        if size > limit {
            return Err(ConversationError::TooLarge { what: "turn", size, limit, unit: "bytes" });
        }
        let counter = shared_state.counter;
        let tokens = if json.len() > INLINE_BYTES && shared_state.config.tokens != TokenCounter::Chars {
            let turn = Arc::clone(&turn);
            tokio::task::spawn_blocking(move || counter.turn(&turn)).await.map_err(StoreError::unavailable)?
        } else {
            counter.turn(&turn)
        };
        let budget = shared_state.config.budget_tokens;
        let refuses =
            shared_state.config.on_oversize == OnOversize::Refuse && shared_state.config.strategy != Strategy::None;
        if refuses && budget > 0 && tokens > budget {
            return Err(ConversationError::Oversize { tokens, budget });
        }
        Ok(Fresh { turn, tokens, json })
    }
}

impl Attempt {
    /// Writes the turn after those of `state`; `None` if somebody else was faster.
    async fn write(&self, state: &State, in_the_way: bool) -> Result<Option<ItemId>> {
        let shared_state = self.memory.shared_state();
        let config = &shared_state.config;
        let id = ItemId::new(state.head.seq + 1);
        let value = self.fresh.value(id, config.tokens);
        let bytes = value.len() as u64;
        let head = Head {
            seq: id.seq,
            turns: state.head.turns + 1,
            bytes: state.head.bytes.saturating_add(bytes),
            generation: if state.head_version == 0 { lineage() } else { state.head.generation },
            ..state.head.clone()
        };
        let ended = state.head_version != 0 && state.touched_at.is_none();
        let mut prior = Health::Healthy;
        let mut ops = Ops::new(self.namespace.clone());
        if ended || (in_the_way && state.head_version == 0) {
            prior = shared_state.rows.state(&self.namespace).await.map_or(prior, |state| state.checkpoint.health);
            ops.clear();
        } else if in_the_way {
            ops.delete_turn(id.seq);
        }
        ops.put_turn(id.seq, value);
        if let Some((name, digest)) = &self.once {
            ops.put_once(name, &Once { id, tokens: self.fresh.tokens, digest: digest.clone() });
        }
        let begins = ended || state.checkpoint_version == 0;
        let mut checkpoint = begins.then(|| shared_state.blank(head.generation));
        if config.strategy == Strategy::Truncation && head.turns == 1 {
            // No summary will carry what was asked for at first.
            let opening = strategies::opening(config, shared_state.counter, &self.fresh.turn);
            checkpoint.get_or_insert_with(|| state.checkpoint.clone()).opening = opening;
        }
        let done = match shared_state.rows.replace(state, Some(&head), checkpoint.as_ref(), ops).await {
            Ok(Some(done)) => done,
            Ok(None) => return Ok(None),
            Err(error) => {
                // Whether it was written is not known.
                shared_state.hot.forget_slot(&self.namespace, &self.slot);
                return Err(error);
            }
        };
        if prior != Health::Healthy {
            shared_state.health_changed(&self.identity, prior, Health::Healthy, Reason::Flushed)?;
        }
        let due = self.cached(state, head, &done, id, bytes, checkpoint);
        shared_state.counters.turns_added.fetch_add(1, Ordering::Relaxed);
        if self.as_admin {
            let who = emit::who(&self.identity);
            shared_state.bus.publish(EventKind::MemoryItemPut { who, key: id.to_string() });
        }
        for due in due.into_iter().flatten() {
            self.memory.0.worker.wake(&self.identity, due);
        }
        Ok(Some(id))
    }

    /// Takes the turn into what is held, and says what is due now.
    fn cached(
        &self,
        state: &State,
        head: Head,
        done: &crate::rows::Replaced,
        id: ItemId,
        bytes: u64,
        checkpoint: Option<crate::rows::Checkpoint>,
    ) -> [Option<Due>; 2] {
        let shared_state = self.memory.shared_state();
        let config = &shared_state.config;
        let prune = strategies::prune_due(config, &head).then_some(Due::Prune);
        let turn = Arc::clone(&self.fresh.turn);
        let kept = Kept { id, tokens: self.fresh.tokens, bytes, created_at: done.at, turn };
        let now = shared_state.clock.monotonic();
        // If nothing is held there may be more to fold than can be seen from here: the worker finds out.
        let mut fold = head.seq.saturating_sub(state.checkpoint.covers_through) > config.recent_turns as u64;
        shared_state.hot.change(&self.namespace, &self.slot, state.head_version, |cached| {
            if let Some(checkpoint) = checkpoint {
                if cached.state.touched_at.is_some() && state.touched_at.is_none() {
                    // What is held is of the conversation that has ended.
                    return false;
                }
                cached.begun(shared_state.counter, checkpoint, done.checkpoint_version);
            }
            cached.added(config, head, done, kept, now);
            fold = cached.backlog(config) > 0;
            true
        });
        [(fold && config.strategy == Strategy::RollingSummary).then_some(Due::Fold), prune]
    }
}

/// Returns what stands for all that is to be added, as it was given: the time too only if it was.
fn digest(turn: &NewTurn) -> String {
    // Fails for no turn that can be written.
    let json = serde_json::to_vec(turn).unwrap_or_default();
    helmdeck_core::hex(&Sha256::digest(json)[..16])
}

/// Waits a little, longer each time and never the same, before a write is tried again.
///
/// # Errors
/// `Contended` if it was tried long enough.
pub(super) async fn wait(give_up: Instant, tries: &mut u32) -> Result<()> {
    if Instant::now() >= give_up {
        return Err(ConversationError::Contended);
    }
    let most = Duration::from_millis(1_u64 << (*tries).min(10)).min(LONGEST_WAIT);
    *tries += 1;
    tokio::time::sleep(most.mul_f64((random() % 1024) as f64 / 1024.0)).await;
    Ok(())
}
