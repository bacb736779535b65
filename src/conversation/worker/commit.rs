//! How what an attempt decides is stored: with a compare-and-set, and told once it is.

use std::time::Duration;

use super::backlog::Backlog;
use super::moves::Move;
use super::summarise::Attempt;
use super::wait;
use crate::error::{ConversationError, Result};
use crate::rows::{Checkpoint, State};

/// How often a checkpoint is tried to be stored before what it says is given up.
const TRIES: u32 = 6;
/// The wait after the first of them that failed, doubled for each one after it.
const TRY_WAIT: Duration = Duration::from_millis(50);

/// What a store that failed may have stored all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Maybe {
    checkpoint: Checkpoint,
    /// The version that it has then; 0 = not known.
    version: u64,
    moves: Vec<Move>,
}

impl Maybe {
    fn is_stored(&self, state: &State) -> bool {
        (self.version == 0 || state.checkpoint_version == self.version) && state.checkpoint == self.checkpoint
    }
}

/// What became of something that was to be stored.
pub(super) enum Stored {
    /// It is stored, and the conversation is at this version of the checkpoint.
    At(u64),
    /// The conversation is another one by now.
    Lost,
}

impl Attempt<'_> {
    /// Stores what `change` makes of the conversation, again and again while others are faster or the store fails, but only as long as
    /// generation and summary are those with which the attempt began.
    pub(super) async fn store(
        &mut self,
        began: &State,
        mut change: impl FnMut(&Backlog) -> (Checkpoint, Vec<Move>),
    ) -> Result<Stored> {
        let mut tries = 0;
        // Kept beyond this attempt if it is not known in the end whether it was stored.
        let mut maybe: Option<Maybe> = None;
        loop {
            let done = async {
                let slot = self.shared_state.hot.slot(self.namespace);
                let _turnstile = slot.turnstile.lock().await;
                let backlog = if tries == 0 { self.backlog().await? } else { self.look_anew().await? };
                if let Some(maybe) = maybe.take_if(|maybe| maybe.is_stored(&backlog.state)) {
                    self.tell(&maybe.moves)?;
                    return Ok(Some(Stored::At(backlog.state.checkpoint_version)));
                }
                if !is_same(&backlog.state, began) || self.gone.is_cancelled() {
                    return Ok(Some(Stored::Lost));
                }
                let (mut checkpoint, moves) = change(&backlog);
                if backlog.state.checkpoint_version == 0 {
                    checkpoint.strategy = self.shared_state.config.strategy;
                }
                if let Some((_, new, _)) = moves.last() {
                    checkpoint.health = *new;
                }
                match self.shared_state.rows.commit(self.namespace, &backlog.state, &checkpoint).await {
                    Ok(Some(version)) => {
                        self.shared_state.replaced(self.namespace, &checkpoint, version);
                        self.tell(&moves)?;
                        Ok(Some(Stored::At(version)))
                    }
                    Ok(None) => Ok(None),
                    Err(error) => {
                        // One that is not there yet begins at a version of chance.
                        let version = backlog.state.checkpoint_version;
                        maybe = Some(Maybe { checkpoint, version: if version == 0 { 0 } else { version + 1 }, moves });
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

    /// Tells what an earlier attempt stored without being told so.
    pub(super) fn tell_late(&mut self, backlog: &Backlog) -> Result<()> {
        match self.notes.maybe.take() {
            Some(maybe) if maybe.is_stored(&backlog.state) => self.tell(&maybe.moves),
            _ => Ok(()),
        }
    }

    fn tell(&self, moves: &[Move]) -> Result<()> {
        moves.iter().try_for_each(|(prior, new, reason)| {
            self.shared_state.health_changed(&self.identity, *prior, *new, *reason)
        })
    }
}

/// Says whether a summary of the conversation as it began belongs to what is there now. A checkpoint that was lost (only its row: the
/// head is there) is written anew; then it is the head that tells one conversation from another.
fn is_same(now: &State, began: &State) -> bool {
    let stamp = |state: &State| (state.checkpoint.generation, state.head.generation, state.checkpoint.covers_through);
    let lost = |state: &State| state.checkpoint_version == 0 && state.head_version != 0;
    let steps = now.head_version.checked_sub(began.head_version);
    stamp(now) == stamp(began)
        && (now.continues(began) || (lost(now) && lost(began) && steps.is_some_and(|steps| steps < 1 << 32)))
}
