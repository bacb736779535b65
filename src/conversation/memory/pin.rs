//! Pins the goal of a conversation.

use helmdeck_memory::Namespace;

use super::ConversationMemory;
use super::replace::{IfDamaged, Replacement};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::rows::{Checkpoint, Ops, StoredState};
use crate::strategies::goal_tokens;
use crate::views::Goal;

impl ConversationMemory {
    /// Returns the goal: the pinned one, or else the opening.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn goal(&self, identity: &Identity) -> Result<Goal> {
        let namespace = self.gate(identity, "goal")?;
        if self.keeps_nothing() {
            return Ok(Goal::default());
        }
        self.ask(identity, &namespace, |cached| {
            Some(Goal::of(&cached.state.checkpoint))
        })
        .await
    }

    /// Pins a goal in the place of the opening, or with `None` shows the opening again.
    ///
    /// # Errors
    /// `Invalid` for an empty goal, or under the strategy `none`; `TooLarge`, `Contended`,
    /// `Corrupt`, `Store`.
    pub async fn pin(&self, identity: &Identity, goal: Option<&str>) -> Result<Goal> {
        let namespace = self.gate(identity, "pin")?;
        let shared = self.shared();
        let goal = goal.map(str::trim);
        if let Some(goal) = goal {
            if goal.is_empty() {
                return Err(ConversationError::Invalid("the goal is empty".to_owned()));
            }
            if self.keeps_nothing() {
                return Err(ConversationError::Invalid(
                    "the strategy none stores no goal".to_owned(),
                ));
            }
            let (size, limit) = (shared.counter.count(goal), goal_tokens(&shared.config));
            if size > limit {
                return Err(ConversationError::TooLarge {
                    what: "goal",
                    size,
                    limit,
                    unit: "tokens",
                });
            }
        }
        let make = |state: &StoredState| Ok(self.pinned(&namespace, state, goal));
        self.replacement(identity, &namespace, IfDamaged::Refuse, make)
            .await?;
        self.goal(identity).await
    }

    /// Returns the conversation with another pinned goal; `None` if it has that one.
    fn pinned(
        &self,
        namespace: &Namespace,
        state: &StoredState,
        goal: Option<&str>,
    ) -> Option<Replacement> {
        let shared = self.shared();
        let live = shared.is_live(state);
        if state.checkpoint.pinned.as_deref().filter(|_| live) == goal {
            return None;
        }
        let mut replacement = if live {
            let (head, checkpoint) = (state.head.clone(), state.checkpoint.clone());
            let ops = Ops::new(namespace.clone());
            Replacement {
                head,
                checkpoint,
                ops,
                reason: None,
                event: None,
                lost: 0,
                needs: None,
            }
        } else {
            let begun = Replacement::nothing(shared, namespace, state, Reason::Flushed);
            Replacement {
                reason: begun
                    .reason
                    .filter(|_| state.checkpoint.health != Health::Healthy),
                ..begun
            }
        };
        replacement.checkpoint = Checkpoint {
            pinned: goal.map(str::to_owned),
            ..replacement.checkpoint
        };
        Some(replacement)
    }
}
