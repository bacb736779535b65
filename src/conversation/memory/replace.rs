//! Replacing a whole dialogue: flushing it, and forgetting it.

use std::sync::Arc;

use helmdeck_memory::{Namespace, StoreError};
use tokio::time::Instant;

use super::ConversationMemory;
use super::add::{PATIENCE, wait};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::rows::{Checkpoint, Head, Ops, State};

/// What takes the place of a dialogue, given what is there.
pub(super) struct Instead {
    /// The head.
    pub(super) head: Head,
    /// The checkpoint.
    pub(super) checkpoint: Checkpoint,
    /// What is written and deleted with it.
    pub(super) ops: Ops,
    /// Whether head and checkpoint make the dialogue healthy, and why.
    pub(super) reason: Option<Reason>,
}

impl ConversationMemory {
    /// Deletes every turn and the summary, and makes the dialogue healthy.
    pub(super) async fn clear(&self, identity: &Identity, namespace: &Namespace, reason: Reason) -> Result<()> {
        let ground = self.ground();
        self.instead(identity, namespace, |state| {
            if state.head_version == 0 && state.checkpoint_version == 0 {
                return Ok(None);
            }
            let generation = state.head.generation + 1;
            let head = Head { seq: state.head.seq, first: state.head.seq + 1, generation, ..Head::default() };
            let mut ops = Ops::new(namespace.clone());
            ops.clear();
            Ok(Some(Instead { head, checkpoint: ground.blank(generation), ops, reason: Some(reason) }))
        })
        .await?
        .map_or_else(|| ground.health_changed(identity, Health::Healthy, Health::Healthy, reason), |_| Ok(()))
    }

    /// Replaces head and checkpoint by what `make` makes of what is there, also of what does not open; returns the new head, `None` if
    /// `make` wants nothing done.
    pub(super) async fn instead(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        make: impl Fn(&State) -> Result<Option<Instead>>,
    ) -> Result<Option<Head>> {
        let ground = self.ground();
        let slot = ground.hot.slot(namespace);
        let mut turnstile = Arc::clone(&slot.turnstile).lock_owned().await;
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            let state = match ground.rows.state(namespace).await {
                Err(ConversationError::Corrupt(_)) => ground.rows.wreck(namespace).await?,
                state => state?,
            };
            let Some(Instead { head, checkpoint, ops, reason }) = make(&state)? else { return Ok(None) };
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
