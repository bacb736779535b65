//! Commits the result of an attempt by compare-and-set, then publishes its events.

use std::time::Duration;

use super::attempt::{Attempt, UnknownCommit};
use super::backlog::Backlog;
use super::moves::Move;
use super::wait;
use crate::error::{ConversationError, Result};
use crate::rows::{Checkpoint, StoredState};

/// Maximum tries to commit a checkpoint.
const TRIES: u32 = 6;
/// Wait after the first failed try, doubled for each further one.
const TRY_WAIT: Duration = Duration::from_millis(50);

/// Result of a commit.
pub(super) enum Stored {
    /// Committed, with this version of the checkpoint.
    At(u64),
    /// The conversation was replaced meanwhile.
    Lost,
}

impl Attempt<'_> {
    /// Commits what `change` returns.
    ///
    /// Retries while other writers are faster or the store fails, as long as generation and summary
    /// are those with which the attempt started.
    pub(super) async fn store(
        &mut self,
        began: &StoredState,
        mut change: impl FnMut(&Backlog) -> (Checkpoint, Vec<Move>),
    ) -> Result<Stored> {
        let mut tries = 0;
        // StoredTurn beyond this attempt if it is not known in the end whether it was stored.
        let mut maybe: Option<UnknownCommit> = None;
        loop {
            let done = async {
                let slot = self.shared.hot.slot(self.namespace);
                let _write_lock = slot.write_lock.lock().await;
                let backlog = if tries == 0 {
                    self.backlog().await?
                } else {
                    self.look_anew().await?
                };
                if let Some(maybe) = maybe.take_if(|maybe| maybe.is_stored(&backlog.state)) {
                    self.publish(&maybe.moves)?;
                    return Ok(Some(Stored::At(backlog.state.checkpoint_version)));
                }
                if !is_same(&backlog.state, began) || self.gone.is_cancelled() {
                    return Ok(Some(Stored::Lost));
                }
                let (mut checkpoint, moves) = change(&backlog);
                if backlog.state.checkpoint_version == 0 {
                    checkpoint.strategy = self.shared.config.strategy;
                }
                if let Some((_, new, _)) = moves.last() {
                    checkpoint.health = *new;
                }
                match self
                    .shared
                    .rows
                    .commit(self.namespace, &backlog.state, &checkpoint)
                    .await
                {
                    Ok(Some(version)) => {
                        self.shared.replaced(self.namespace, &checkpoint, version);
                        self.publish(&moves)?;
                        Ok(Some(Stored::At(version)))
                    }
                    Ok(None) => Ok(None),
                    Err(error) => {
                        // A new checkpoint starts at a random version.
                        let version = backlog.state.checkpoint_version;
                        maybe = Some(UnknownCommit {
                            checkpoint,
                            version: if version == 0 { 0 } else { version + 1 },
                            moves,
                        });
                        Err(error)
                    }
                }
            };
            let done = done.await;
            if tries + 1 >= TRIES && done.is_err() {
                self.notes.maybe = maybe.take();
            }
            match done {
                Ok(Some(stored)) => return Ok(stored),
                Err(error) if !error.is_temporary() => return Err(error),
                Err(error) if tries + 1 >= TRIES => return Err(error),
                Ok(None) if tries + 1 >= TRIES => return Err(ConversationError::Contended),
                _ => {}
            }
            let pause = wait::jittered(TRY_WAIT.saturating_mul(1 << tries));
            tries += 1;
            tokio::select! {
                () = self.stop.cancelled() => return Err(ConversationError::Closed),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Publishes what an earlier attempt committed without knowing.
    pub(super) fn publish_late(&mut self, backlog: &Backlog) -> Result<()> {
        match self.notes.maybe.take() {
            Some(maybe) if maybe.is_stored(&backlog.state) => self.publish(&maybe.moves),
            _ => Ok(()),
        }
    }

    fn publish(&self, moves: &[Move]) -> Result<()> {
        moves.iter().try_for_each(|(prior, new, reason)| {
            self.shared
                .health_changed(&self.identity, *prior, *new, *reason)
        })
    }
}

/// Returns whether a summary made for `began` still applies.
///
/// If only the checkpoint's row was lost, it is written anew; then the head identifies the
/// conversation.
fn is_same(now: &StoredState, began: &StoredState) -> bool {
    let stamp = |state: &StoredState| {
        (
            state.checkpoint.generation,
            state.head.generation,
            state.checkpoint.covers_through,
        )
    };
    let lost = |state: &StoredState| state.checkpoint_version == 0 && state.head_version != 0;
    let steps = now.head_version.checked_sub(began.head_version);
    stamp(now) == stamp(began)
        && (now.continues(began)
            || (lost(now) && lost(began) && steps.is_some_and(|steps| steps < 1 << 32)))
}
