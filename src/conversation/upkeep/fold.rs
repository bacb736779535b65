//! One attempt to fold the oldest turns of a dialogue into its summary.
//!
//! Everything that an attempt decides is stored with a compare-and-set on the checkpoint, so whatever happens meanwhile (another
//! process, a flush, a restore, a delete) wins against it, and a late summary is thrown away. The lock only saves asking a model twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::Namespace;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::batch::Batch;
use super::line::Ended;
use super::look::Look;
use super::moves::{self, Move};
use super::wait;
use crate::error::{ConversationError, Result};
use crate::ground::Ground;
use crate::health::Health;
use crate::identity::Identity;
use crate::rows::{Checkpoint, State};
use crate::strategies;
use crate::summarizer::{Failure, SummarizeError, SummarizeRequest};

/// How much longer than a request the lock of a dialogue is held: for reading and storing.
const MARGIN: Duration = Duration::from_secs(30);
/// How often a checkpoint is tried to be stored before what it says is given up.
const TRIES: u32 = 6;
/// The wait after the first of them that failed, doubled for each one after it.
const TRY_WAIT: Duration = Duration::from_millis(50);
/// How long to wait for a request to end that was cancelled.
const HEED: Duration = Duration::from_millis(100);
/// How long to wait for another process that folds the same dialogue.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// What is remembered of a dialogue from one attempt to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// How often what a request may have is to be halved.
    pub(super) shrink: u32,
    /// How often what a turn may have that is alone in its request is to be halved.
    pub(super) clip: u32,
    /// The version of the checkpoint that tells of our last failure: if it is another, somebody else failed.
    tried: u64,
    /// How often the store failed in a row.
    store_failures: u32,
    /// Whether the length of the backlog was told.
    warned: bool,
}

/// What became of something that was to be stored.
enum Stored {
    /// It is stored, and the dialogue is at this version of the checkpoint.
    At(u64),
    /// The dialogue is another one by now.
    Lost,
}

/// Why there is no summary.
enum NoSummary {
    /// The summarizer failed.
    Failed(SummarizeError),
    /// Nobody wants it any more.
    Stopped,
}

struct Attempt<'a> {
    ground: &'a Ground,
    namespace: &'a Namespace,
    identity: Identity,
    /// Cancelled when the memory is closed.
    stop: &'a CancellationToken,
    /// Cancelled when the dialogue is replaced.
    gone: &'a CancellationToken,
    notes: Notes,
}

/// Makes an attempt; returns how it ended, and what to remember.
pub(super) async fn attempt(
    ground: &Ground,
    namespace: &Namespace,
    (stop, gone): (&CancellationToken, &CancellationToken),
    forced: bool,
    notes: Notes,
) -> (Ended, Notes) {
    let identity = identity(namespace);
    let mut attempt = Attempt { ground, namespace, identity, stop, gone, notes };
    let ended = match attempt.run(forced).await {
        Ok(ended) => {
            attempt.notes.store_failures = 0;
            ended
        }
        Err(error @ (ConversationError::Corrupt(_) | ConversationError::InvalidHealthTransition { .. })) => {
            tracing::error!(%error, "a conversation cannot be summarised");
            Ended::Done
        }
        Err(error) => {
            tracing::warn!(%error, "a conversation could not be summarised; it is tried again");
            attempt.notes.store_failures = attempt.notes.store_failures.saturating_add(1);
            Ended::Rest(wait::after(&ground.config.summarizer, attempt.notes.store_failures, None))
        }
    };
    let notes = if ended == Ended::Done { Notes::default() } else { attempt.notes };
    (ended, notes)
}

/// Returns how many turns of a dialogue are due.
///
/// # Errors
/// `Corrupt`, `Store`.
pub(super) async fn due(ground: &Ground, namespace: &Namespace) -> Result<u64> {
    ground.ask(namespace, |hold| Some(hold.backlog(&ground.config))).await
}

/// Returns whose a dialogue is.
pub(super) fn identity(namespace: &Namespace) -> Identity {
    Identity {
        tenant: namespace.tenant.clone(),
        user: namespace.subject.clone(),
        session: namespace.session.clone().unwrap_or_default(),
        run: None,
    }
}

impl Attempt<'_> {
    async fn run(&mut self, forced: bool) -> Result<Ended> {
        let look = self.look().await?;
        if look.is_settled() {
            return Ok(Ended::Done);
        }
        if !forced && let Some(rest) = self.rest(&look.state).await? {
            return Ok(Ended::Rest(rest));
        }
        let hold = self.ground.config.summarizer.timeout.saturating_add(MARGIN);
        let name = format!("conversation/fold/{}", digest(self.namespace));
        let Some(lock) = self.ground.rows.store().try_lock(&name, hold).await? else {
            return Ok(Ended::Rest(wait::jittered(BUSY_WAIT)));
        };
        let ended = self.locked().await;
        // If this fails, the lock is free after its time.
        let _ = lock.release().await;
        ended
    }

    /// Makes the attempt; nobody else is at this dialogue.
    async fn locked(&mut self) -> Result<Ended> {
        let look = self.look_anew().await?;
        if look.is_settled() {
            return Ok(Ended::Done);
        }
        self.warn(&look);
        let begun = moves::begun(look.state.checkpoint.health);
        if let Some(begun) = begun {
            let checkpoint = Checkpoint { health: begun.1, ..look.state.checkpoint.clone() };
            if !self.store_once(&look.state, &checkpoint, &[begun]).await? {
                return Ok(Ended::More);
            }
        }
        let look = if begun.is_some() { self.look().await? } else { look };
        if look.due == 0 {
            // What had failed to be folded is not there any more.
            return self.drained(&look, None).await;
        }
        let batch = Batch::read(self.ground, self.namespace, &look, &self.notes).await?;
        if batch.kept.is_empty() {
            return self.drained(&look, Some(&batch)).await;
        }
        match self.summarize(&look, &batch).await {
            Ok(summary) => self.succeeded(&look, &batch, summary).await,
            Err(NoSummary::Failed(error)) => self.failed(&look, &batch, error).await,
            Err(NoSummary::Stopped) => {
                if !self.stop.is_cancelled() {
                    self.ground.counters.folds_discarded.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Ended::Done)
            }
        }
    }

    /// Returns how long to wait before the next attempt, if somebody else failed here: another process, or this one before it was
    /// started again.
    async fn rest(&mut self, state: &State) -> Result<Option<Duration>> {
        let (failures, version) = (state.checkpoint.failures, state.checkpoint_version);
        if failures == 0 || self.notes.tried == version {
            return Ok(None);
        }
        let Some(failed_at) = self.ground.rows.checkpoint_at(self.namespace).await? else { return Ok(None) };
        // Once is enough, whatever the clocks say.
        self.notes.tried = version;
        let wait = wait::after(&self.ground.config.summarizer, failures, None);
        Ok(remaining(wait, failed_at, self.ground.now()))
    }

    /// Asks for a summary.
    async fn summarize(&self, look: &Look, batch: &Batch) -> Result<String, NoSummary> {
        let (ground, config) = (self.ground, &self.ground.config);
        let failed = |reason, detail: &str| {
            NoSummary::Failed(SummarizeError { reason, retry_after: None, detail: detail.to_owned() })
        };
        let Some(summarizer) = ground.summarizer.clone() else {
            return Err(failed(Failure::Unavailable, "there is no summarizer"));
        };
        let max_tokens = config.summary_tokens();
        let request = SummarizeRequest {
            previous_summary: look.state.checkpoint.summary.clone(),
            turns: batch.turns(ground.counter, &config.summarizer, &self.notes),
            opening: self.opening(&look.state.checkpoint, batch),
            max_tokens,
        };
        let identity = self.identity.clone();
        // A task of its own: one that never yields or panics takes no worker with it.
        let mut call =
            AbortOnDropHandle::new(tokio::spawn(async move { summarizer.summarize(&identity, request).await }));
        let answer = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(NoSummary::Stopped),
            () = self.gone.cancelled() => Err(NoSummary::Stopped),
            () = tokio::time::sleep(config.summarizer.timeout) => Err(failed(Failure::Timeout, "no answer in time")),
            answer = &mut call => Ok(answer),
        };
        let response = match answer {
            Err(none) => {
                // The next request for this dialogue begins when this one has ended, unless it does not heed.
                call.abort();
                let _ = tokio::time::timeout(HEED, &mut call).await;
                return Err(none);
            }
            Ok(Err(_)) => return Err(failed(Failure::Unavailable, "the summarizer panicked")),
            Ok(Ok(response)) => response.map_err(NoSummary::Failed)?,
        };
        let summary = ground.counter.clamp(response.summary.trim(), max_tokens);
        if summary.is_empty() {
            return Err(failed(Failure::Garbage, "the summary is empty"));
        }
        Ok(summary.into_owned())
    }

    /// Returns what the user asked for at first, if that is known by now.
    fn opening(&self, checkpoint: &Checkpoint, batch: &Batch) -> Option<String> {
        let begins = checkpoint.covers_through == 0 && checkpoint.summary.is_empty();
        let first = || {
            let (config, counter) = (&self.ground.config, self.ground.counter);
            batch.kept.iter().find_map(|kept| strategies::opening(config, counter, kept))
        };
        checkpoint.opening.clone().or_else(|| begins.then(first).flatten())
    }

    /// Stores a summary.
    async fn succeeded(&mut self, began: &Look, batch: &Batch, summary: String) -> Result<Ended> {
        let opening = self.opening(&began.state.checkpoint, batch);
        let config = &self.ground.config;
        let counter = self.ground.counter;
        let fixed = counter.count(&summary) + opening.as_deref().map_or(0, |opening| counter.count(opening));
        let folded = batch.kept.len() as u64 + batch.unreadable;
        let mut more = false;
        let stored = self
            .store(&began.state, |look| {
                let unfolded = look.unfolded.saturating_sub(folded);
                more = strategies::backlog(config, fixed, unfolded, look.newest(unfolded)) > 0;
                let moves = moves::succeeded(look.state.checkpoint.health, more);
                let checkpoint = Checkpoint {
                    covers_through: batch.through,
                    summary: summary.clone(),
                    opening: opening.clone(),
                    failures: 0,
                    last_failure: None,
                    ..look.state.checkpoint.clone()
                };
                (checkpoint, moves)
            })
            .await?;
        match stored {
            Stored::At(_) => {
                self.ground.counters.folds.fetch_add(1, Ordering::Relaxed);
                self.ground.recovery_dropped(&self.identity, "unreadable", batch.unreadable);
                // Not at once as much as before: what was too much a moment ago may still be.
                self.notes.shrink = self.notes.shrink.saturating_sub(1);
                self.notes.clip = 0;
                Ok(if more { Ended::More } else { Ended::Done })
            }
            Stored::Lost => Ok(self.lost()),
        }
    }

    /// Goes past turns that do not open, or says that nothing is left to recover.
    async fn drained(&mut self, began: &Look, batch: Option<&Batch>) -> Result<Ended> {
        let config = &self.ground.config;
        let mut more = false;
        let stored = self
            .store(&began.state, |look| {
                let checkpoint = &look.state.checkpoint;
                let through = batch.map_or(0, |batch| batch.through).max(checkpoint.covers_through);
                let unfolded = if batch.is_some() { look.unfolded.saturating_sub(look.due) } else { look.unfolded };
                more = strategies::backlog(config, look.fixed(self.ground), unfolded, look.newest(unfolded)) > 0;
                // Of a summarizer that failed nothing is known by this.
                let recovers = checkpoint.health == Health::Recovering;
                let moves = if recovers { moves::succeeded(checkpoint.health, more) } else { Vec::new() };
                (Checkpoint { covers_through: through, ..checkpoint.clone() }, moves)
            })
            .await?;
        match stored {
            Stored::At(_) => {
                let unreadable = batch.map_or(0, |batch| batch.unreadable);
                self.ground.recovery_dropped(&self.identity, "unreadable", unreadable);
                Ok(if more { Ended::More } else { Ended::Done })
            }
            Stored::Lost => Ok(Ended::More),
        }
    }

    /// Stores that there is no summary.
    async fn failed(&mut self, began: &Look, batch: &Batch, error: SummarizeError) -> Result<Ended> {
        let config = &self.ground.config.summarizer;
        tracing::warn!(reason = error.reason.as_str(), detail = %error.detail, "a conversation was not summarised");
        self.ground.counters.fold_failed(error.reason);
        if error.reason.wants_less() {
            if batch.kept.len() > 1 {
                // Half of what was sent, which may be less than what might have been.
                while config.batch_turns >> self.notes.shrink.min(63) >= batch.kept.len() && self.notes.shrink < 63 {
                    self.notes.shrink += 1;
                }
            } else if error.reason == Failure::TooLong {
                self.notes.clip = self.notes.clip.saturating_add(1).min(63);
            }
        }
        let mut failures = 0;
        let stored = self
            .store(&began.state, |look| {
                let checkpoint = &look.state.checkpoint;
                failures = checkpoint.failures.saturating_add(1);
                let moves = moves::failed(checkpoint.health, failures, config.max_attempts);
                let last_failure = Some(error.reason.as_str().to_owned());
                (Checkpoint { failures, last_failure, ..checkpoint.clone() }, moves)
            })
            .await?;
        match stored {
            Stored::At(version) => {
                self.notes.tried = version;
                Ok(Ended::Rest(wait::after(config, failures, error.retry_after)))
            }
            Stored::Lost => Ok(self.lost()),
        }
    }

    fn lost(&self) -> Ended {
        self.ground.counters.folds_discarded.fetch_add(1, Ordering::Relaxed);
        Ended::More
    }

    /// Stores what `change` makes of the dialogue, again and again while others are faster or the store fails, but only as long as
    /// generation and summary are those with which the attempt began.
    async fn store(&self, began: &State, mut change: impl FnMut(&Look) -> (Checkpoint, Vec<Move>)) -> Result<Stored> {
        // What a store that failed may have stored all the same.
        let mut maybe: Option<(Checkpoint, u64, Vec<Move>)> = None;
        let mut tries = 0;
        loop {
            let done = async {
                let slot = self.ground.hot.slot(self.namespace);
                let _turnstile = slot.turnstile.lock().await;
                let look = if tries == 0 { self.look().await? } else { self.look_anew().await? };
                if let Some((checkpoint, version, moves)) = &maybe
                    && look.state.checkpoint_version == *version
                    && look.state.checkpoint == *checkpoint
                {
                    self.tell(moves)?;
                    return Ok(Some(Stored::At(*version)));
                }
                let same = |checkpoint: &Checkpoint| (checkpoint.generation, checkpoint.covers_through);
                if same(&look.state.checkpoint) != same(&began.checkpoint)
                    || !look.state.continues(began)
                    || self.gone.is_cancelled()
                {
                    return Ok(Some(Stored::Lost));
                }
                let (mut checkpoint, moves) = change(&look);
                if let Some((_, new, _)) = moves.last() {
                    checkpoint.health = *new;
                }
                match self.ground.rows.commit(self.namespace, &look.state, &checkpoint).await {
                    Ok(Some(version)) => {
                        self.ground.replaced(self.namespace, &checkpoint, version);
                        self.tell(&moves)?;
                        Ok(Some(Stored::At(version)))
                    }
                    Ok(None) => Ok(None),
                    Err(error) => {
                        maybe = Some((checkpoint, look.state.checkpoint_version + 1, moves));
                        Err(error)
                    }
                }
            };
            match done.await {
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

    /// Stores a checkpoint in the place of the one that was seen; `false` if somebody else was faster.
    async fn store_once(&self, state: &State, checkpoint: &Checkpoint, moves: &[Move]) -> Result<bool> {
        let slot = self.ground.hot.slot(self.namespace);
        let _turnstile = slot.turnstile.lock().await;
        let stored = self.ground.rows.commit(self.namespace, state, checkpoint).await;
        match &stored {
            Ok(Some(version)) => self.ground.replaced(self.namespace, checkpoint, *version),
            _ => self.ground.hot.forget(self.namespace),
        }
        if stored?.is_none() {
            return Ok(false);
        }
        self.tell(moves)?;
        Ok(true)
    }

    fn tell(&self, moves: &[Move]) -> Result<()> {
        moves
            .iter()
            .try_for_each(|(prior, new, reason)| self.ground.health_changed(&self.identity, *prior, *new, *reason))
    }

    /// Says once that a backlog is long, until it is short again.
    fn warn(&mut self, look: &Look) {
        let config = &self.ground.config;
        let batches = look.due.div_ceil(config.summarizer.batch_turns as u64);
        let long = batches > config.recovery_backlog_max;
        if long && !self.notes.warned {
            self.ground.counters.long_backlogs.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                turns = look.due,
                batches,
                "many turns of a conversation wait for a summary; none is dropped"
            );
        }
        self.notes.warned = long;
    }

    async fn look(&self) -> Result<Look> {
        self.ground.ask(self.namespace, |hold| Some(Look::of(self.ground, hold))).await
    }

    /// Looks at the rows themselves.
    async fn look_anew(&self) -> Result<Look> {
        let held = self.look().await?;
        let state = self.ground.rows.state(self.namespace).await?;
        if state.checkpoint_version == held.state.checkpoint_version {
            return Ok(held);
        }
        self.ground.hot.forget(self.namespace);
        self.look().await
    }
}

/// Returns what is left of a wait that began some time ago, as another clock may say.
fn remaining(wait: Duration, began: Timestamp, now: Timestamp) -> Option<Duration> {
    Some(wait.saturating_sub(now.since(began))).filter(|rest| !rest.is_zero())
}

/// Returns what stands for a dialogue in the name of a lock: the same in every process, and nobody's name.
fn digest(namespace: &Namespace) -> String {
    // FNV-1a of 128 bits. Two dialogues of one digest would only wait for each other.
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let mut feed = |byte: u8| hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    for part in [&*namespace.tenant, &*namespace.subject, namespace.session.as_deref().unwrap_or_default()] {
        part.bytes().for_each(&mut feed);
        // No text has this byte, so no two namespaces feed the same.
        feed(0xff);
    }
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_keeps_the_parts_apart_and_never_changes() {
        let of = |tenant, user, session| digest(&Namespace::new(tenant, user, Some(session)));
        assert_ne!(of("a", "bc", "d"), of("ab", "c", "d"));
        assert_ne!(of("a", "b", "cd"), of("a", "bc", "d"));
        assert_eq!(of("t", "u", "s").len(), 32);
        // Two versions of the program may fold the same dialogue.
        assert_eq!(of("t", "u", "s"), "6057e08eb13c64bf6f3e1a5382e9ba7e");
    }

    #[test]
    fn a_wait_of_another_process_is_kept() {
        let wait = Duration::from_secs(10);
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        assert_eq!(remaining(wait, at(100), at(104)), Some(Duration::from_secs(6)));
        assert_eq!(remaining(wait, at(100), at(110)), None);
        assert_eq!(remaining(wait, at(100), at(50)), Some(wait), "its clock is ahead: no longer than the wait");
    }
}
