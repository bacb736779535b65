//! One attempt to summarise the oldest turns of a conversation into its summary.
//!
//! Everything that an attempt decides is stored with a compare-and-set on the checkpoint, so whatever happens meanwhile (another
//! process, a flush, a restore, a delete) wins against it, and a late summary is thrown away. The lock only saves asking a model twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_memory::Namespace;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::backlog::Backlog;
use super::batch::Batch;
use super::commit::{Maybe, Stored};
use super::fair_queue::Ended;
use super::fit;
use super::moves;
use super::name;
use super::wait;
use crate::error::{ConversationError, Result};
use crate::health::Health;
use crate::identity::Identity;
use crate::rows::{Base, Checkpoint, State};
use crate::shared_state::Shared;
use crate::strategies;
use crate::summarizer::{Failure, SummarizeError, SummarizeRequest};

/// How long the lock of a conversation is held without being renewed: what others wait after a process has died in an attempt.
const HOLD: Duration = Duration::from_secs(6);
/// How often it is renewed meanwhile.
const RENEWAL: Duration = Duration::from_secs(2);
/// How long to wait for a request to end that was cancelled.
const HEED: Duration = Duration::from_millis(100);
/// How long to wait for another process that summaries the same conversation.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// What is remembered of a conversation from one attempt to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// How often what a request may have is to be halved.
    pub(super) shrink: u32,
    /// How often what a turn may have that is alone in its request is to be halved.
    pub(super) clip: u32,
    /// The version of the checkpoint that tells of our last failure: if it is another, somebody else failed.
    tried: u64,
    /// How often a turn failed that is alone in its request.
    alone: u32,
    /// How often the summary was complete and too long, in a row.
    long: u32,
    /// How often the store failed in a row.
    store_failures: u32,
    /// Whether the length of the backlog was told.
    warned: bool,
    /// What was not told, because it is not known whether it was stored.
    pub(super) maybe: Option<Maybe>,
    /// When the endpoint wants to be asked again, whoever asks.
    not_before: Option<Instant>,
    /// When somebody last wanted an attempt at once.
    forced_at: Option<Instant>,
}

/// Why there is no summary.
enum NoSummary {
    /// The summarizer failed.
    Failed(SummarizeError),
    /// Nobody wants it any more.
    Stopped,
}

pub(super) struct Attempt<'a> {
    pub(super) shared_state: &'a Shared,
    pub(super) namespace: &'a Namespace,
    pub(super) identity: Identity,
    /// Cancelled when the memory is closed.
    pub(super) stop: &'a CancellationToken,
    /// Cancelled when the conversation is replaced.
    pub(super) gone: &'a CancellationToken,
    pub(super) notes: Notes,
}

/// Makes an attempt; returns how it ended, and what to remember.
pub(super) async fn attempt(
    shared_state: &Shared,
    namespace: &Namespace,
    (stop, gone): (&CancellationToken, &CancellationToken),
    forced: bool,
    notes: Notes,
) -> (Ended, Notes) {
    let identity = identity(namespace);
    let mut attempt = Attempt { shared_state, namespace, identity, stop, gone, notes };
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
            Ended::Rest(wait::after(&shared_state.config.summarizer, attempt.notes.store_failures, None))
        }
    };
    let notes = if ended == Ended::Done { Notes::default() } else { attempt.notes };
    (ended, notes)
}

/// Returns how many turns of a conversation are due.
///
/// # Errors
/// `Corrupt`, `Store`.
pub(super) async fn due(shared_state: &Shared, namespace: &Namespace) -> Result<u64> {
    shared_state.ask(namespace, |cached| Some(cached.backlog(&shared_state.config))).await
}

/// Returns how often the summarizer failed in a row.
///
/// # Errors
/// `Corrupt`, `Store`.
pub(super) async fn failures(shared_state: &Shared, namespace: &Namespace) -> Result<u32> {
    shared_state.ask(namespace, |cached| Some(cached.state.checkpoint.failures)).await
}

/// Says whether an attempt after so many failures failed in a way that another attempt cannot mend.
///
/// # Errors
/// `Corrupt`, `Store`.
pub(super) async fn is_refused(shared_state: &Shared, namespace: &Namespace, before: u32) -> Result<bool> {
    let last = shared_state
        .ask(namespace, |cached| {
            let checkpoint = &cached.state.checkpoint;
            Some(checkpoint.last_failure.clone().filter(|_| checkpoint.failures > before))
        })
        .await?;
    Ok(last.is_some_and(|word| [Failure::Credential, Failure::Refused].iter().any(|known| known.as_str() == word)))
}

/// Returns whose a conversation is.
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
        let backlog = self.backlog().await?;
        if backlog.is_settled() && self.notes.maybe.is_none() {
            return Ok(Ended::Done);
        }
        if let Some(rest) = self.patience(forced) {
            return Ok(Ended::Rest(rest));
        }
        if !forced && let Some(rest) = self.rest(&backlog.state).await? {
            return Ok(Ended::Rest(rest));
        }
        let name = format!("conversation/fold/{}", name::digest(self.namespace));
        let Some(lock) = self.shared_state.rows.store().try_lock(&name, HOLD).await? else {
            return Ok(Ended::Rest(wait::jittered(BUSY_WAIT)));
        };
        let renewing = async {
            loop {
                tokio::time::sleep(RENEWAL).await;
                // Whoever has it instead asks a model for the same; what is stored is decided by versions.
                let _ = lock.renew(HOLD).await;
            }
        };
        let ended = tokio::select! {
            biased;
            ended = self.locked() => ended,
            never = renewing => never,
        };
        // If this fails, the lock is free after its time.
        let _ = lock.release().await;
        ended
    }

    /// Makes the attempt; nobody else is at this conversation.
    async fn locked(&mut self) -> Result<Ended> {
        let backlog = self.look_anew().await?;
        self.tell_late(&backlog)?;
        if backlog.is_settled() {
            return Ok(Ended::Done);
        }
        self.warn(&backlog);
        let begun = moves::begun(backlog.state.checkpoint.health);
        if begun.is_some() {
            let begin = |backlog: &Backlog| {
                let checkpoint = backlog.state.checkpoint.clone();
                let moves = moves::begun(checkpoint.health).into_iter().collect();
                (checkpoint, moves)
            };
            if let Stored::Lost = self.store(&backlog.state, begin).await? {
                return Ok(Ended::Rest(wait::jittered(BUSY_WAIT)));
            }
        }
        let backlog = if begun.is_some() { self.backlog().await? } else { backlog };
        if backlog.due == 0 {
            // What had failed to be summarised is not there any more.
            return self.drained(&backlog, None).await;
        }
        let batch = Batch::read(self.shared_state, self.namespace, &backlog, &self.notes).await?;
        if batch.kept.is_empty() {
            return self.drained(&backlog, Some(&batch)).await;
        }
        match self.summarize(&backlog, &batch).await {
            Ok(summary) => self.succeeded(&backlog, &batch, summary).await,
            Err(NoSummary::Failed(error)) => self.failed(&backlog, &batch, error).await,
            Err(NoSummary::Stopped) => {
                if !self.stop.is_cancelled() {
                    self.shared_state.counters.folds_discarded.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Ended::Done)
            }
        }
    }

    /// Returns how long to wait also if somebody wants an attempt now: as long as the endpoint says, and after an attempt that was
    /// wanted so the first wait at least, for whoever asks again and again must not flood an endpoint that fails.
    fn patience(&mut self, forced: bool) -> Option<Duration> {
        let now = Instant::now();
        let again_at =
            self.notes.forced_at.filter(|_| forced).map(|at| at + self.shared_state.config.summarizer.retry_wait);
        let until = self.notes.not_before.max(again_at).filter(|until| *until > now);
        if until.is_none() && forced {
            self.notes.forced_at = Some(now);
        }
        until.map(|until| until - now)
    }

    /// Returns how long to wait before the next attempt, if somebody else failed here: another process, or this one before it was
    /// started again.
    async fn rest(&mut self, state: &State) -> Result<Option<Duration>> {
        let (failures, version) = (state.checkpoint.failures, state.checkpoint_version);
        if failures == 0 || self.notes.tried == version {
            return Ok(None);
        }
        let Some(failed_at) = self.shared_state.rows.checkpoint_at(self.namespace).await? else { return Ok(None) };
        // Once is enough, whatever the clocks say.
        self.notes.tried = version;
        let wait = wait::after(&self.shared_state.config.summarizer, failures, None);
        Ok(wait::remaining(wait, failed_at, self.shared_state.now()))
    }

    /// Asks for a summary.
    async fn summarize(&mut self, backlog: &Backlog, batch: &Batch) -> Result<String, NoSummary> {
        let (shared_state, config) = (self.shared_state, &self.shared_state.config);
        let failed = |reason, detail: &str| {
            NoSummary::Failed(SummarizeError { reason, retry_after: None, detail: detail.to_owned() })
        };
        let Some(summarizer) = shared_state.summarizer.clone() else {
            return Err(failed(Failure::Unavailable, "there is no summarizer"));
        };
        let (max_tokens, counter) = (config.summary_tokens(), shared_state.counter);
        let opening = self.opening(&backlog.state.checkpoint, batch);
        // A restored summary, or one of other settings, may be longer than a model can read; its row keeps it whole.
        let request = SummarizeRequest {
            previous_summary: fit::shortened(counter, &backlog.state.checkpoint.summary, max_tokens).into_owned(),
            turns: batch.turns(counter, &config.summarizer, &self.notes),
            opening: opening.map(|opening| counter.clamp(&opening, fit::OPENING_TOKENS).into_owned()),
            max_tokens: fit::asked(max_tokens, self.notes.long),
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
                // The next request for this conversation begins when this one has ended, unless it does not heed.
                call.abort();
                let _ = tokio::time::timeout(HEED, &mut call).await;
                return Err(none);
            }
            Ok(Err(_)) => return Err(failed(Failure::Unavailable, "the summarizer panicked")),
            Ok(Ok(response)) => response.map_err(NoSummary::Failed)?,
        };
        let summary = response.summary.trim();
        if summary.is_empty() {
            return Err(failed(Failure::Garbage, "the summary is empty"));
        }
        let tokens = counter.count(summary);
        if tokens > max_tokens {
            // What models append last is what they were just given: to cut it off would lose those turns.
            self.notes.long = self.notes.long.saturating_add(1);
            if self.notes.long < config.summarizer.max_attempts {
                return Err(failed(Failure::Truncated, "the summary is longer than it may be"));
            }
            tracing::warn!(tokens, max_tokens, "a summary stays too long; its middle is left out");
        }
        Ok(fit::shortened(counter, summary, max_tokens).into_owned())
    }

    /// Returns what the user asked for at first, if that is known by now.
    fn opening(&self, checkpoint: &Checkpoint, batch: &Batch) -> Option<String> {
        let begins = checkpoint.covers_through == 0 && checkpoint.summary.is_empty();
        let first = || {
            let (config, counter) = (&self.shared_state.config, self.shared_state.counter);
            batch.kept.iter().find_map(|kept| strategies::opening(config, counter, &kept.turn))
        };
        checkpoint.opening.clone().or_else(|| begins.then(first).flatten())
    }

    /// Stores a summary.
    async fn succeeded(&mut self, began: &Backlog, batch: &Batch, summary: String) -> Result<Ended> {
        let opening = self.opening(&began.state.checkpoint, batch);
        let config = &self.shared_state.config;
        let counter = self.shared_state.counter;
        let fixed = counter.count(&summary) + opening.as_deref().map_or(0, |opening| counter.count(opening));
        let summarised = batch.kept.len() as u64 + batch.unreadable;
        let mut more = false;
        let stored = self
            .store(&began.state, |backlog| {
                let unsummarised = backlog.unsummarised.saturating_sub(summarised);
                more = strategies::backlog(config, fixed, unsummarised, backlog.newest(unsummarised)) > 0;
                let moves = moves::succeeded(backlog.state.checkpoint.health, more);
                let head = &backlog.state.head;
                let gone = batch.kept.iter().filter(|kept| kept.id.seq < head.first).count() as u64;
                let base = backlog.state.checkpoint.base.clone();
                // Turns that retention took meanwhile: the summary cannot be made anew without them.
                let grown = |base: Option<Base>| {
                    let gone = base.unwrap_or_default().gone + gone;
                    Base { summary: summary.clone(), through: batch.through, gone }
                };
                let checkpoint = Checkpoint {
                    covers_through: batch.through,
                    base: if gone > 0 { Some(grown(base)) } else { base },
                    summary: summary.clone(),
                    opening: opening.clone(),
                    failures: 0,
                    last_failure: None,
                    ..backlog.state.checkpoint.clone()
                };
                (checkpoint, moves)
            })
            .await?;
        match stored {
            Stored::At(_) => {
                self.shared_state.counters.folds.fetch_add(1, Ordering::Relaxed);
                self.shared_state.recovery_dropped(&self.identity, "unreadable", batch.unreadable);
                // Not at once as much as before: what was too much a moment ago may still be.
                self.notes.shrink = self.notes.shrink.saturating_sub(1);
                (self.notes.clip, self.notes.alone, self.notes.long) = (0, 0, 0);
                Ok(if more { Ended::More } else { Ended::Done })
            }
            Stored::Lost => Ok(self.lost()),
        }
    }

    /// Goes past turns that do not open, or says that nothing is left to recover.
    async fn drained(&mut self, began: &Backlog, batch: Option<&Batch>) -> Result<Ended> {
        let (shared_state, config) = (self.shared_state, &self.shared_state.config);
        let mut more = false;
        let stored = self
            .store(&began.state, |backlog| {
                let checkpoint = &backlog.state.checkpoint;
                let through = batch.map_or(0, |batch| batch.through).max(checkpoint.covers_through);
                let unsummarised = if batch.is_some() {
                    backlog.unsummarised.saturating_sub(backlog.due)
                } else {
                    backlog.unsummarised
                };
                more = strategies::backlog(
                    config,
                    backlog.fixed(shared_state),
                    unsummarised,
                    backlog.newest(unsummarised),
                ) > 0;
                // Of a summarizer that failed nothing is known by this.
                let recovers = checkpoint.health == Health::Recovering;
                let moves = if recovers { moves::succeeded(checkpoint.health, more) } else { Vec::new() };
                let mut checkpoint = Checkpoint { covers_through: through, ..checkpoint.clone() };
                if recovers && !more {
                    // Who is well has not failed: the next failure is the first one.
                    (checkpoint.failures, checkpoint.last_failure) = (0, None);
                }
                (checkpoint, moves)
            })
            .await?;
        match stored {
            Stored::At(_) => {
                let unreadable = batch.map_or(0, |batch| batch.unreadable);
                self.shared_state.recovery_dropped(&self.identity, "unreadable", unreadable);
                Ok(if more { Ended::More } else { Ended::Done })
            }
            Stored::Lost => Ok(Ended::Rest(wait::jittered(BUSY_WAIT))),
        }
    }

    /// Stores that there is no summary.
    async fn failed(&mut self, began: &Backlog, batch: &Batch, error: SummarizeError) -> Result<Ended> {
        let config = &self.shared_state.config.summarizer;
        tracing::warn!(reason = error.reason.as_str(), detail = %error.detail, "a conversation was not summarised");
        self.shared_state.counters.fold_failed(error.reason);
        if error.reason.wants_less() {
            if batch.kept.len() > 1 {
                // Half of what was sent, which may be less than what might have been.
                while config.batch_turns >> self.notes.shrink.min(63) >= batch.kept.len() && self.notes.shrink < 63 {
                    self.notes.shrink += 1;
                }
            } else {
                self.notes.alone = self.notes.alone.saturating_add(1);
                // The model read the turn and could do nothing with it. Other failures may have nothing to do with what it says, so
                // it is tried more often before it is sent in part only.
                let at_once = matches!(error.reason, Failure::TooLong | Failure::Truncated | Failure::Looping);
                if at_once || self.notes.alone.is_multiple_of(config.max_attempts) {
                    self.notes.clip = batch.clip_more(config, self.notes.clip);
                }
            }
        }
        let mut failures = 0;
        let stored = self
            .store(&began.state, |backlog| {
                let checkpoint = &backlog.state.checkpoint;
                failures = checkpoint.failures.saturating_add(1);
                let moves = moves::failed(checkpoint.health, failures, config.max_attempts);
                let last_failure = Some(error.reason.as_str().to_owned());
                (Checkpoint { failures, last_failure, ..checkpoint.clone() }, moves)
            })
            .await?;
        match stored {
            Stored::At(version) => {
                self.notes.tried = version;
                let asked = error.retry_after.map(|asked| asked.min(config.max_retry_wait.max(config.retry_wait)));
                self.notes.not_before = asked.and_then(|asked| Instant::now().checked_add(asked));
                Ok(Ended::Rest(wait::after(config, failures, error.retry_after)))
            }
            Stored::Lost => Ok(self.lost()),
        }
    }

    fn lost(&self) -> Ended {
        self.shared_state.counters.folds_discarded.fetch_add(1, Ordering::Relaxed);
        // Never at once: whatever made it so may do it again, and each time costs a request.
        Ended::Rest(wait::jittered(BUSY_WAIT))
    }

    /// Says once that a backlog is long, until it is short again.
    fn warn(&mut self, backlog: &Backlog) {
        let config = &self.shared_state.config;
        let batches = backlog.due.div_ceil(config.summarizer.batch_turns as u64);
        let long = batches > config.recovery_backlog_max;
        if long && !self.notes.warned {
            self.shared_state.counters.long_backlogs.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                turns = backlog.due,
                batches,
                "many turns of a conversation wait for a summary; none is dropped"
            );
        }
        self.notes.warned = long;
    }

    pub(super) async fn backlog(&self) -> Result<Backlog> {
        self.shared_state.ask(self.namespace, |cached| Some(Backlog::of(self.shared_state, cached))).await
    }

    /// Looks at the rows themselves.
    pub(super) async fn look_anew(&self) -> Result<Backlog> {
        let held = self.backlog().await?;
        let state = self.shared_state.rows.state(self.namespace).await?;
        if state.checkpoint_version == held.state.checkpoint_version {
            return Ok(held);
        }
        self.shared_state.hot.forget(self.namespace);
        self.backlog().await
    }
}
