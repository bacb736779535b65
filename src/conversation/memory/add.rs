//! Adds a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_core::jitter::jittered;
use helmdeck_events::EventKind;
use helmdeck_memory::{Namespace, StoreError};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::ConversationMemory;
use crate::config::{OnOversize, Strategy, TokenCounter};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::hot_tier::Slot;
use crate::identity::Identity;
use crate::rows::{EncodedTurn, Head, Once, Ops, StoredState, StoredTurn, new_generation};
use crate::strategies;
use crate::turn::NewTurn;
use crate::turn_id::TurnId;
use crate::views::Added;
use crate::wire;
use crate::worker::Due;

/// Time limit for retries of a write while others write to the same conversation.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_millis(64);
/// From this size on, a tokenizer runs on a blocking thread.
const INLINE_BYTES: usize = 16 << 10;
/// Maximum bytes of an idempotency key.
const ONCE_BYTES: usize = 256;

/// A write in progress. It runs to its end, even if the caller has given up.
struct Attempt {
    memory: ConversationMemory,
    identity: Identity,
    namespace: Namespace,
    slot: Arc<Slot>,
    fresh: EncodedTurn,
    /// The idempotency key, and the digest of the turn.
    once: Option<(String, String)>,
    as_admin: bool,
    /// The lock of this process's writers.
    _write_lock: OwnedMutexGuard<()>,
}

impl ConversationMemory {
    /// Adds a turn. Once it returns, the turn survives a process crash and a power cut.
    ///
    /// The cost does not depend on the length of the conversation, and no model is called.
    ///
    /// # Errors
    /// `Oversize`, `TooLarge`, `Invalid`, `OnceReused`: nothing was written. `Contended`, `Store`:
    /// nothing was written, unless the connection broke during the write. Callers that must know
    /// set `once` and add the turn again.
    pub async fn add_turn(&self, identity: &Identity, turn: NewTurn) -> Result<Added> {
        self.add(identity, turn, "add_turn", false).await
    }

    /// Adds a turn as an administrator, with the event `memory.item_put`.
    ///
    /// # Errors
    /// As [`Self::add_turn`].
    pub async fn put_turn(&self, identity: &Identity, turn: NewTurn) -> Result<Added> {
        self.add(identity, turn, "put_item", true).await
    }

    async fn add(
        &self,
        identity: &Identity,
        mut turn: NewTurn,
        operation: &'static str,
        as_admin: bool,
    ) -> Result<Added> {
        let namespace = self.gate(identity, operation)?;
        let once = turn.once.take();
        if once
            .as_ref()
            .is_some_and(|name| name.is_empty() || name.len() > ONCE_BYTES)
        {
            return Err(ConversationError::Invalid(format!(
                "once must have 1 to {ONCE_BYTES} bytes"
            )));
        }
        let once = once.map(|name| (name, digest(&turn)));
        let fresh = self.fresh(turn).await?;
        let tokens = fresh.tokens;
        if self.keeps_nothing() {
            return Ok(Added {
                id: None,
                tokens,
                repeated: false,
            });
        }
        let shared = self.shared();
        let slot = shared.hot.slot(&namespace);
        let write_lock = Arc::clone(&slot.write_lock).lock_owned().await;
        let mut state = match slot.state() {
            Some(state) => shared.visible(state),
            None => shared.state(&namespace, &slot).await?,
        };
        let mut attempt = Attempt {
            memory: self.clone(),
            identity: identity.clone(),
            namespace,
            slot,
            fresh,
            once,
            as_admin,
            _write_lock: write_lock,
        };
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        let mut in_the_way = false;
        loop {
            let before = state.head_version;
            // The caller may stop waiting at any time; a started write is finished, and the cached
            // copy stays true.
            let task = tokio::spawn(async move {
                let done = attempt.write(&state, in_the_way).await;
                (attempt, done)
            });
            let done;
            (attempt, done) = task.await.map_err(StoreError::unavailable)?;
            if let Some(id) = done? {
                return Ok(Added {
                    id: Some(id),
                    tokens,
                    repeated: false,
                });
            }
            if let Some((name, digest)) = &attempt.once
                && let Some(once) = shared.rows.once(&attempt.namespace, name).await?
            {
                shared.hot.forget_slot(&attempt.namespace, &attempt.slot);
                if !once.digest.is_empty() && once.digest != *digest {
                    return Err(ConversationError::OnceReused);
                }
                return Ok(Added {
                    id: Some(once.id),
                    tokens: once.tokens,
                    repeated: true,
                });
            }
            wait(give_up, &mut tries).await?;
            state = shared
                .catch_up(&attempt.namespace, &attempt.slot, |_| Some(()))
                .await?
                .0;
            // No other writer, so an orphaned row is in the way.
            in_the_way = state.head_version == before;
        }
    }

    /// Encodes a turn and counts its tokens.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`, `Oversize`.
    pub(super) async fn fresh(&self, turn: NewTurn) -> Result<EncodedTurn> {
        let shared = self.shared();
        let turn = Arc::new(
            turn.into_turn(shared.now())
                .map_err(ConversationError::Invalid)?,
        );
        let json = wire::write_turn(&turn);
        let (size, limit) = (json.len() as u64, shared.config.max_turn_bytes);
        if size > limit {
            return Err(ConversationError::TooLarge {
                what: "turn",
                size,
                limit,
                unit: "bytes",
            });
        }
        let counter = shared.counter;
        let tokens = if json.len() > INLINE_BYTES && shared.config.tokens != TokenCounter::Chars {
            let turn = Arc::clone(&turn);
            tokio::task::spawn_blocking(move || counter.turn(&turn))
                .await
                .map_err(StoreError::unavailable)?
        } else {
            counter.turn(&turn)
        };
        let budget = shared.config.budget_tokens;
        let refuses = shared.config.on_oversize == OnOversize::Refuse
            && shared.config.strategy != Strategy::None;
        if refuses && budget > 0 && tokens > budget {
            return Err(ConversationError::Oversize { tokens, budget });
        }
        Ok(EncodedTurn {
            turn,
            tokens,
            json: json.into(),
        })
    }
}

impl Attempt {
    /// Writes the turn after those of `state`; `None` if another writer was faster.
    async fn write(&self, state: &StoredState, in_the_way: bool) -> Result<Option<TurnId>> {
        let shared = self.memory.shared();
        let config = &shared.config;
        let id = TurnId::new(state.head.seq + 1);
        let value = self.fresh.value(id, config.tokens);
        let bytes = value.len() as u64;
        let head = Head {
            seq: id.seq,
            turns: state.head.turns + 1,
            bytes: state.head.bytes.saturating_add(bytes),
            generation: if state.head_version == 0 {
                new_generation()
            } else {
                state.head.generation
            },
            ..state.head.clone()
        };
        let ended = state.head_version != 0 && state.touched_at.is_none();
        let mut prior = Health::Healthy;
        let mut ops = Ops::new(self.namespace.clone());
        if ended || (in_the_way && state.head_version == 0) {
            prior = shared
                .rows
                .state(&self.namespace)
                .await
                .map_or(prior, |state| state.checkpoint.health);
            ops.clear();
        } else if in_the_way {
            ops.delete_turn(id.seq);
        }
        ops.put_turn(id.seq, value);
        if let Some((name, digest)) = &self.once {
            ops.put_once(
                name,
                &Once {
                    id,
                    tokens: self.fresh.tokens,
                    digest: digest.clone(),
                },
            );
        }
        let begins = ended || state.checkpoint_version == 0;
        let mut checkpoint = begins.then(|| shared.blank(head.generation));
        let current = checkpoint.as_ref().unwrap_or(&state.checkpoint);
        // What a restored summary covers may have had an opening.
        if current.opening.is_none()
            && current.base.is_none()
            && let Some(opening) = strategies::opening(config, shared.counter, &self.fresh.turn)
        {
            checkpoint
                .get_or_insert_with(|| state.checkpoint.clone())
                .opening = Some(opening);
        }
        let done = match shared
            .rows
            .replace(state, Some(&head), checkpoint.as_ref(), ops)
            .await
        {
            Ok(Some(done)) => done,
            Ok(None) => return Ok(None),
            Err(error) => {
                // The write may have succeeded.
                shared.hot.forget_slot(&self.namespace, &self.slot);
                return Err(error);
            }
        };
        if prior != Health::Healthy {
            shared.health_changed(&self.identity, prior, Health::Healthy, Reason::Flushed)?;
        }
        let due = self.cached(state, head, &done, id, bytes, checkpoint);
        shared.counters.turns_added.fetch_add(1, Ordering::Relaxed);
        self.count_secret();
        if self.as_admin {
            let who = self.identity.who();
            shared.bus.publish(EventKind::MemoryItemPut {
                who,
                key: id.to_string(),
            });
        }
        for due in due.into_iter().flatten() {
            self.memory.0.worker.wake(&self.identity, due);
        }
        Ok(Some(id))
    }

    /// Counts the turn if it looks like it holds a credential, after the reply.
    ///
    /// It is kept all the same: a conversation that lacks what was said would mislead everyone who
    /// reads on.
    fn count_secret(&self) {
        let (memory, json) = (self.memory.clone(), self.fresh.json.clone());
        tokio::spawn(async move {
            if helmdeck_memory::leaks::first_leak(&json).await.is_some() {
                memory
                    .shared()
                    .counters
                    .turns_with_secret
                    .fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Adds the turn to the cached copy, and returns what is due.
    fn cached(
        &self,
        state: &StoredState,
        head: Head,
        done: &crate::rows::Replaced,
        id: TurnId,
        bytes: u64,
        checkpoint: Option<crate::rows::Checkpoint>,
    ) -> [Option<Due>; 2] {
        let shared = self.memory.shared();
        let config = &shared.config;
        let prune = strategies::prune_due(config, &head).then_some(Due::Prune);
        let turn = Arc::clone(&self.fresh.turn);
        let kept = StoredTurn {
            id,
            tokens: self.fresh.tokens,
            bytes,
            created_at: done.at,
            turn,
        };
        let now = shared.clock.monotonic();
        // If nothing is cached, more may be due than is known here: the worker finds out.
        let mut fold =
            head.seq.saturating_sub(state.checkpoint.covers_through) > config.recent_turns as u64;
        shared
            .hot
            .change(&self.namespace, &self.slot, state.head_version, |cached| {
                if let Some(checkpoint) = checkpoint {
                    if cached.state.touched_at.is_some() && state.touched_at.is_none() {
                        // The copy is of the expired conversation.
                        return false;
                    }
                    cached.started(shared.counter, checkpoint, done.checkpoint_version);
                }
                cached.added(config, head, done, kept, now);
                fold = cached.backlog(config) > 0;
                true
            });
        [
            (fold && config.strategy == Strategy::RollingSummary).then_some(Due::Summarise),
            prune,
        ]
    }
}

/// Returns the digest of a turn as it was given: its time counts only if the caller set it.
fn digest(turn: &NewTurn) -> String {
    // Every turn can be serialised.
    let json = serde_json::to_vec(turn).unwrap_or_default();
    helmdeck_core::hex(&Sha256::digest(json)[..16])
}

/// Waits before a retry: exponential backoff with full jitter.
///
/// # Errors
/// `Contended` after `give_up`.
pub(super) async fn wait(give_up: Instant, tries: &mut u32) -> Result<()> {
    if Instant::now() >= give_up {
        return Err(ConversationError::Contended);
    }
    let most = Duration::from_millis(1_u64 << (*tries).min(10)).min(LONGEST_WAIT);
    *tries += 1;
    tokio::time::sleep(jittered(most, 0.0..=1.0)).await;
    Ok(())
}
