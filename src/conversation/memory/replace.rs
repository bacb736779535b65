//! Replaces a whole conversation: the common part of flush, restore, delete and forget.

use std::sync::Arc;

use helmdeck_events::EventKind;
use helmdeck_memory::{Namespace, StoreError};
use tokio::time::Instant;

use super::ConversationMemory;
use super::add::{PATIENCE, wait};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::rows::{Checkpoint, Head, Ops, StoredState, encoding, new_generation};
use crate::shared::Shared;

/// What to do with an unreadable conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfDamaged {
    /// Replace it like any other.
    Replace,
    /// Return an error.
    Refuse,
}

/// The new content of a conversation.
pub(super) struct Replacement {
    pub(super) head: Head,
    pub(super) checkpoint: Checkpoint,
    /// Other writes and deletes of the batch.
    pub(super) ops: Ops,
    /// Reason of the reset to healthy; `None` = the health stays.
    pub(super) reason: Option<Reason>,
    /// Event to publish afterwards.
    pub(super) event: Option<EventKind>,
    /// Number of turns of the old summary that can't be summarised again.
    pub(super) lost: u64,
    /// Range of turns that must all be stored already.
    pub(super) needs: Option<(u64, u64)>,
}

impl Replacement {
    /// Returns an empty conversation.
    pub(super) fn nothing(
        shared: &Shared,
        namespace: &Namespace,
        state: &StoredState,
        reason: Reason,
    ) -> Self {
        let generation = if state.head_version == 0 {
            new_generation()
        } else {
            state.head.generation + 1
        };
        let head = Head {
            seq: state.head.seq,
            first: state.head.seq + 1,
            generation,
            ..Head::default()
        };
        let mut ops = Ops::new(namespace.clone());
        ops.clear();
        let checkpoint = shared.blank(generation);
        Self {
            head,
            checkpoint,
            ops,
            reason: Some(reason),
            event: None,
            lost: 0,
            needs: None,
        }
    }
}

impl ConversationMemory {
    /// Deletes every turn and the summary, and resets the health.
    pub(super) async fn clear(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        reason: Reason,
    ) -> Result<()> {
        let shared = self.shared();
        // An interrupted restore may have left turns without a conversation.
        let any = shared.rows.is_any(namespace).await?;
        let done = self.replacement(identity, namespace, IfDamaged::Replace, |state| {
            let absent = !any && state.head_version == 0 && state.checkpoint_version == 0;
            Ok((!absent).then(|| Replacement::nothing(shared, namespace, state, reason)))
        });
        match done.await? {
            Some(_) => Ok(()),
            None => shared.health_changed(identity, Health::Healthy, Health::Healthy, reason),
        }
    }

    /// Removes a conversation and all its data, and returns the number of its turns.
    ///
    /// Also removes an unreadable one.
    ///
    /// # Errors
    /// `Store`.
    pub async fn forget(&self, identity: &Identity) -> Result<u64> {
        let namespace = &self.gate(identity, "forget")?;
        let slot = self.shared().hot.slot(namespace);
        let write_lock = Arc::clone(&slot.write_lock).lock_owned().await;
        let (memory, identity, namespace) = (self.clone(), identity.clone(), namespace.clone());
        let task = tokio::spawn(async move {
            let shared = memory.shared();
            let prior = shared
                .rows
                .state(&namespace)
                .await
                .map_or(Health::Healthy, |state| state.checkpoint.health);
            let turns = shared.rows.erase(&namespace).await;
            shared.hot.forget_slot(&namespace, &slot);
            let turns = turns?;
            memory.0.worker.forgotten(&namespace);
            if prior != Health::Healthy {
                shared.health_changed(&identity, prior, Health::Healthy, Reason::Flushed)?;
            }
            drop(write_lock);
            Ok(turns)
        });
        task.await.map_err(StoreError::unavailable)?
    }

    /// Replaces a conversation by what `make` returns for the current state.
    ///
    /// Returns the new head; `None` if `make` does.
    pub(super) async fn replacement(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        wreck: IfDamaged,
        make: impl Fn(&StoredState) -> Result<Option<Replacement>>,
    ) -> Result<Option<Head>> {
        let shared = self.shared();
        let slot = shared.hot.slot(namespace);
        let mut write_lock = Arc::clone(&slot.write_lock).lock_owned().await;
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            let state = match shared.rows.state(namespace).await {
                Err(ConversationError::Corrupt(_)) if wreck == IfDamaged::Replace => {
                    shared.rows.wreck(namespace).await?
                }
                state => state?,
            };
            let Some(replacement) = make(&state)? else {
                return Ok(None);
            };
            let Replacement {
                head,
                checkpoint,
                ops,
                reason,
                event,
                lost,
                needs,
            } = replacement;
            if let Some((first, last)) = needs
                // Deleting them later replaces or removes the head, if there is one.
                && (state.head_version == 0
                    || shared.rows.keys(namespace, encoding::TURNS, first, last).await?.len() as u64 != last - first + 1)
            {
                return Err(ConversationError::Contended);
            }
            let (memory, identity, slot) = (self.clone(), identity.clone(), Arc::clone(&slot));
            let namespace = namespace.clone();
            let new = head.clone();
            let task = tokio::spawn(async move {
                let shared = memory.shared();
                let done = match shared
                    .rows
                    .replace(&state, Some(&head), Some(&checkpoint), ops)
                    .await
                {
                    // The write may have succeeded.
                    Err(error) => match memory.is_there(&namespace, &head, &checkpoint).await {
                        true => Ok(true),
                        false => Err(error),
                    },
                    done => done.map(|done| done.is_some()),
                };
                shared.hot.forget_slot(&namespace, &slot);
                if matches!(done, Ok(true)) {
                    if head.generation != state.head.generation {
                        memory.0.worker.forgotten(&namespace);
                    }
                    if let Some(reason) = reason {
                        let prior = state.checkpoint.health;
                        shared.health_changed(&identity, prior, checkpoint.health, reason)?;
                    }
                    shared.recovery_dropped(&identity, "summary_rebuilt", lost);
                    if let Some(event) = event {
                        shared.bus.publish(event);
                    }
                }
                done.map(|done| (write_lock, done))
            });
            let done;
            (write_lock, done) = task.await.map_err(StoreError::unavailable)??;
            if done {
                return Ok(Some(new));
            }
            wait(give_up, &mut tries).await?;
        }
    }

    /// Returns whether head and checkpoint are stored, perhaps with turns added since.
    ///
    /// `false` if that is unknown.
    async fn is_there(&self, namespace: &Namespace, head: &Head, checkpoint: &Checkpoint) -> bool {
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            match self.shared().rows.state(namespace).await {
                Ok(StoredState {
                    head: there,
                    checkpoint: with,
                    ..
                }) => {
                    let same = (there.generation, there.first) == (head.generation, head.first);
                    return same && there.seq >= head.seq && with == *checkpoint;
                }
                Err(error) if !error.is_temporary() || wait(give_up, &mut tries).await.is_err() => {
                    return false;
                }
                Err(_) => {}
            }
        }
    }
}
