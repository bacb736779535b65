//! Replacing a whole conversation: what flush, restore, delete and forget have in common.

use std::sync::Arc;

use helmdeck_events::EventKind;
use helmdeck_memory::{Namespace, StoreError};
use tokio::time::Instant;

use super::ConversationMemory;
use super::add::{PATIENCE, wait};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::rows::{Checkpoint, Head, Ops, State, form, lineage};
use crate::shared_state::Shared;

/// What is done with a conversation that does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wreck {
    /// It is replaced as any other.
    Replace,
    /// It is an error.
    Refuse,
}

/// What takes the place of a conversation, given what is there.
pub(super) struct Instead {
    /// The head.
    pub(super) head: Head,
    /// The checkpoint.
    pub(super) checkpoint: Checkpoint,
    /// What is written and deleted with it.
    pub(super) ops: Ops,
    /// Why the conversation is healthy now; `None` = its health stays.
    pub(super) reason: Option<Reason>,
    /// What is told once it is done.
    pub(super) told: Option<EventKind>,
    /// How many turns of the former summary cannot be summarised again.
    pub(super) lost: u64,
    /// Turns of which every one must be stored already: the first and the last.
    pub(super) needs: Option<(u64, u64)>,
}

impl Instead {
    /// Puts an empty conversation in the place of what is there.
    pub(super) fn nothing(shared_state: &Shared, namespace: &Namespace, state: &State, reason: Reason) -> Self {
        let generation = if state.head_version == 0 { lineage() } else { state.head.generation + 1 };
        let head = Head { seq: state.head.seq, first: state.head.seq + 1, generation, ..Head::default() };
        let mut ops = Ops::new(namespace.clone());
        ops.clear();
        let checkpoint = shared_state.blank(generation);
        Self { head, checkpoint, ops, reason: Some(reason), told: None, lost: 0, needs: None }
    }
}

impl ConversationMemory {
    /// Deletes every turn and the summary, and makes the conversation healthy.
    pub(super) async fn clear(&self, identity: &Identity, namespace: &Namespace, reason: Reason) -> Result<()> {
        let shared_state = self.shared_state();
        // A restore that was cut off may have left turns where there is no conversation.
        let any = shared_state.rows.is_any(namespace).await?;
        let done = self.instead(identity, namespace, Wreck::Replace, |state| {
            let absent = !any && state.head_version == 0 && state.checkpoint_version == 0;
            Ok((!absent).then(|| Instead::nothing(shared_state, namespace, state, reason)))
        });
        match done.await? {
            Some(_) => Ok(()),
            None => shared_state.health_changed(identity, Health::Healthy, Health::Healthy, reason),
        }
    }

    /// Removes a conversation with everything about it, whatever is there, and says how many turns went.
    pub(super) async fn erase(&self, identity: &Identity, namespace: &Namespace) -> Result<u64> {
        let slot = self.shared_state().hot.slot(namespace);
        let turnstile = Arc::clone(&slot.turnstile).lock_owned().await;
        let (memory, identity, namespace) = (self.clone(), identity.clone(), namespace.clone());
        let task = tokio::spawn(async move {
            let shared_state = memory.shared_state();
            let prior =
                shared_state.rows.state(&namespace).await.map_or(Health::Healthy, |state| state.checkpoint.health);
            let turns = shared_state.rows.erase(&namespace).await;
            shared_state.hot.forget_slot(&namespace, &slot);
            let turns = turns?;
            memory.0.worker.forgotten(&namespace);
            if prior != Health::Healthy {
                shared_state.health_changed(&identity, prior, Health::Healthy, Reason::Flushed)?;
            }
            drop(turnstile);
            Ok(turns)
        });
        task.await.map_err(StoreError::unavailable)?
    }

    /// Replaces head and checkpoint by what `make` makes of what is there; returns the new head, `None` if `make` wants nothing done.
    pub(super) async fn instead(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        wreck: Wreck,
        make: impl Fn(&State) -> Result<Option<Instead>>,
    ) -> Result<Option<Head>> {
        let shared_state = self.shared_state();
        let slot = shared_state.hot.slot(namespace);
        let mut turnstile = Arc::clone(&slot.turnstile).lock_owned().await;
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            let state = match shared_state.rows.state(namespace).await {
                Err(ConversationError::Corrupt(_)) if wreck == Wreck::Replace => {
                    shared_state.rows.wreck(namespace).await?
                }
                state => state?,
            };
            let Some(instead) = make(&state)? else { return Ok(None) };
            let Instead { head, checkpoint, ops, reason, told, lost, needs } = instead;
            if let Some((first, last)) = needs
                // Whoever deletes them after this look replaces or removes the head, if there is one.
                && (state.head_version == 0
                    || shared_state.rows.keys(namespace, form::TURNS, first, last).await?.len() as u64 != last - first + 1)
            {
                return Err(ConversationError::Contended);
            }
            let (memory, identity, slot) = (self.clone(), identity.clone(), Arc::clone(&slot));
            let namespace = namespace.clone();
            let new = head.clone();
            let task = tokio::spawn(async move {
                let shared_state = memory.shared_state();
                let done = match shared_state.rows.replace(&state, Some(&head), Some(&checkpoint), ops).await {
                    // Whether it was written is not known.
                    Err(error) => match memory.is_there(&namespace, &head, &checkpoint).await {
                        true => Ok(true),
                        false => Err(error),
                    },
                    done => done.map(|done| done.is_some()),
                };
                shared_state.hot.forget_slot(&namespace, &slot);
                if matches!(done, Ok(true)) {
                    memory.0.worker.forgotten(&namespace);
                    if let Some(reason) = reason {
                        let prior = state.checkpoint.health;
                        shared_state.health_changed(&identity, prior, checkpoint.health, reason)?;
                    }
                    shared_state.recovery_dropped(&identity, "summary_rebuilt", lost);
                    if let Some(told) = told {
                        shared_state.bus.publish(told);
                    }
                }
                done.map(|done| (turnstile, done))
            });
            let done;
            (turnstile, done) = task.await.map_err(StoreError::unavailable)??;
            if done {
                return Ok(Some(new));
            }
            wait(give_up, &mut tries).await?;
        }
    }

    /// Says whether head and checkpoint are stored; turns may have been added since. `false` also if that cannot be found out.
    async fn is_there(&self, namespace: &Namespace, head: &Head, checkpoint: &Checkpoint) -> bool {
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            match self.shared_state().rows.state(namespace).await {
                Ok(State { head: there, checkpoint: with, .. }) => {
                    let same = (there.generation, there.first) == (head.generation, head.first);
                    return same && there.seq >= head.seq && with == *checkpoint;
                }
                Err(error) if !error.is_temporary() || wait(give_up, &mut tries).await.is_err() => return false,
                Err(_) => {}
            }
        }
    }
}
