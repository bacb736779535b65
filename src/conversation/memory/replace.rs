//! Replacing a whole dialogue: what flush, restore, delete and forget have in common.

use std::sync::Arc;

use helmdeck_events::EventKind;
use helmdeck_memory::{Namespace, StoreError};
use tokio::time::Instant;

use super::ConversationMemory;
use super::add::{PATIENCE, wait};
use crate::error::{ConversationError, Result};
use crate::ground::Ground;
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::rows::{Checkpoint, Head, Ops, State};

/// What is done with a dialogue that does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wreck {
    /// It is replaced as any other.
    Replace,
    /// It is an error.
    Refuse,
}

/// What takes the place of a dialogue, given what is there.
pub(super) struct Instead {
    /// The head.
    pub(super) head: Head,
    /// The checkpoint.
    pub(super) checkpoint: Checkpoint,
    /// What is written and deleted with it.
    pub(super) ops: Ops,
    /// Why the dialogue is healthy now; `None` = its health stays.
    pub(super) reason: Option<Reason>,
    /// What is told once it is done.
    pub(super) told: Option<EventKind>,
    /// How many turns of the former summary cannot be summarised again.
    pub(super) lost: u64,
}

impl Instead {
    /// Puts an empty dialogue in the place of what is there.
    pub(super) fn nothing(ground: &Ground, namespace: &Namespace, state: &State, reason: Reason) -> Self {
        let generation = state.head.generation + 1;
        let head = Head { seq: state.head.seq, first: state.head.seq + 1, generation, ..Head::default() };
        let mut ops = Ops::new(namespace.clone());
        ops.clear();
        Self { head, checkpoint: ground.blank(generation), ops, reason: Some(reason), told: None, lost: 0 }
    }
}

impl ConversationMemory {
    /// Deletes every turn and the summary, and makes the dialogue healthy.
    pub(super) async fn clear(&self, identity: &Identity, namespace: &Namespace, reason: Reason) -> Result<()> {
        let ground = self.ground();
        let done = self.instead(identity, namespace, Wreck::Replace, |state| {
            let absent = state.head_version == 0 && state.checkpoint_version == 0;
            Ok((!absent).then(|| Instead::nothing(ground, namespace, state, reason)))
        });
        match done.await? {
            Some(_) => Ok(()),
            None => ground.health_changed(identity, Health::Healthy, Health::Healthy, reason),
        }
    }

    /// Removes a dialogue with everything about it, whatever is there, and says how many turns went.
    pub(super) async fn erase(&self, identity: &Identity, namespace: &Namespace) -> Result<u64> {
        let slot = self.ground().hot.slot(namespace);
        let turnstile = Arc::clone(&slot.turnstile).lock_owned().await;
        let (memory, identity, namespace) = (self.clone(), identity.clone(), namespace.clone());
        let task = tokio::spawn(async move {
            let ground = memory.ground();
            let prior = ground.rows.state(&namespace).await.map_or(Health::Healthy, |state| state.checkpoint.health);
            let turns = ground.rows.erase(&namespace).await;
            ground.hot.forget_slot(&namespace, &slot);
            let turns = turns?;
            memory.0.upkeep.forgotten(&namespace);
            if prior != Health::Healthy {
                ground.health_changed(&identity, prior, Health::Healthy, Reason::Flushed)?;
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
        let ground = self.ground();
        let slot = ground.hot.slot(namespace);
        let mut turnstile = Arc::clone(&slot.turnstile).lock_owned().await;
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            let state = match ground.rows.state(namespace).await {
                Err(ConversationError::Corrupt(_)) if wreck == Wreck::Replace => ground.rows.wreck(namespace).await?,
                state => state?,
            };
            let Some(instead) = make(&state)? else { return Ok(None) };
            let Instead { head, checkpoint, ops, reason, told, lost } = instead;
            let (memory, identity, slot) = (self.clone(), identity.clone(), Arc::clone(&slot));
            let namespace = namespace.clone();
            let new = head.clone();
            let task = tokio::spawn(async move {
                let ground = memory.ground();
                let done = ground.rows.replace(&state, Some(&head), Some(&checkpoint), ops).await;
                ground.hot.forget_slot(&namespace, &slot);
                if let Ok(Some(_)) = done {
                    memory.0.upkeep.forgotten(&namespace);
                    if let Some(reason) = reason {
                        let prior = state.checkpoint.health;
                        ground.health_changed(&identity, prior, checkpoint.health, reason)?;
                    }
                    ground.recovery_dropped(&identity, "summary_rebuilt", lost);
                    if let Some(told) = told {
                        ground.bus.publish(told);
                    }
                }
                done.map(|done| (turnstile, done.is_some()))
            });
            let done;
            (turnstile, done) = task.await.map_err(StoreError::unavailable)??;
            if done {
                return Ok(Some(new));
            }
            wait(give_up, &mut tries).await?;
        }
    }
}
