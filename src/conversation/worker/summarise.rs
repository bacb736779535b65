//! One attempt to summarise the oldest turns of a conversation.
//!
//! Every result is stored by compare-and-set on the checkpoint. So every concurrent change (another
//! process, a flush, a restore, a delete) wins, and a late summary is discarded. The lock only
//! saves a second model call.

use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_memory::Namespace;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::attempt::{Attempt, Notes};
use super::backlog::Backlog;
use super::batch::Batch;
use super::commit::Stored;
use super::fair_queue::JobEnd;
use super::moves;
use super::name;
use super::wait;
use crate::error::{ConversationError, Result};
use crate::health::Health;
use crate::identity::Identity;
use crate::rows::{Base, Checkpoint, StoredState};
use crate::shared::Shared;
use crate::strategies;
use crate::summarizer::{Failure, SummarizeError, SummarizeRequest};

/// Lifetime of a conversation's lock: the wait of others after a process died in an attempt.
const HOLD: Duration = Duration::from_secs(6);
/// Interval of its renewals.
const RENEWAL: Duration = Duration::from_secs(2);
/// Wait for the end of a cancelled request.
const HEED: Duration = Duration::from_millis(100);
/// Wait for another process that summarises the same conversation.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// Maximum requests for one batch whose summaries are over their limit.
const REQUESTS: u32 = 3;

/// A summary, as it is stored.
struct Summary {
    text: String,
    /// Tokens of the whole one, if it was cut.
    cut_from: Option<u64>,
}

/// Why there is no summary.
enum NoSummary {
    /// The summarizer failed.
    Failed(SummarizeError),
    /// It is not needed any more.
    Stopped,
}

/// Makes an attempt; returns its end and the state to keep.
pub(super) async fn attempt(
    shared: &Shared,
    namespace: &Namespace,
    (stop, gone): (&CancellationToken, &CancellationToken),
    forced: bool,
    notes: Notes,
) -> (JobEnd, Notes) {
    let identity = identity(namespace);
    let mut attempt = Attempt {
        shared,
        namespace,
        identity,
        stop,
        gone,
        notes,
    };
    let ended = match attempt.run(forced).await {
        Ok(ended) => {
            attempt.notes.store_failures = 0;
            ended
        }
        Err(
            error @ (ConversationError::Corrupt(_)
            | ConversationError::InvalidHealthTransition { .. }),
        ) => {
            tracing::error!(%error, "a conversation cannot be summarised");
            JobEnd::Done
        }
        Err(error) => {
            tracing::warn!(%error, "a conversation could not be summarised; it is tried again");
            attempt.notes.store_failures = attempt.notes.store_failures.saturating_add(1);
            JobEnd::Rest(wait::after(
                &shared.config.summarizer,
                attempt.notes.store_failures,
                None,
            ))
        }
    };
    let notes = if ended == JobEnd::Done {
        Notes::default()
    } else {
        attempt.notes
    };
    (ended, notes)
}

/// Returns the number of due turns.
pub(super) async fn due(shared: &Shared, namespace: &Namespace) -> Result<u64> {
    shared
        .ask(namespace, |cached| Some(cached.backlog(&shared.config)))
        .await
}

/// Returns the consecutive failures of the summarizer.
pub(super) async fn failures(shared: &Shared, namespace: &Namespace) -> Result<u32> {
    shared
        .ask(namespace, |cached| Some(cached.state.checkpoint.failures))
        .await
}

/// Returns whether the last failure, after `before` failures, is one that another attempt can't
/// repair.
pub(super) async fn is_refused(
    shared: &Shared,
    namespace: &Namespace,
    before: u32,
) -> Result<bool> {
    let last = shared
        .ask(namespace, |cached| {
            let checkpoint = &cached.state.checkpoint;
            Some(
                checkpoint
                    .last_failure
                    .clone()
                    .filter(|_| checkpoint.failures > before),
            )
        })
        .await?;
    Ok(last.is_some_and(|word| {
        [Failure::Credential, Failure::Refused]
            .iter()
            .any(|known| known.as_str() == word)
    }))
}

/// Returns the owner of a conversation.
pub(super) fn identity(namespace: &Namespace) -> Identity {
    Identity {
        tenant: namespace.tenant.clone(),
        user: namespace.subject.clone(),
        session: namespace.session.clone().unwrap_or_default(),
        run: None,
    }
}

impl Attempt<'_> {
    async fn run(&mut self, forced: bool) -> Result<JobEnd> {
        let backlog = self.backlog().await?;
        if backlog.is_settled() && self.notes.maybe.is_none() {
            return Ok(JobEnd::Done);
        }
        if let Some(rest) = self.patience(forced) {
            return Ok(JobEnd::Rest(rest));
        }
        if !forced && let Some(rest) = self.rest(&backlog.state).await? {
            return Ok(JobEnd::Rest(rest));
        }
        let name = format!("conversation/fold/{}", name::digest(self.namespace));
        let Some(lock) = self.shared.rows.store().try_lock(&name, HOLD).await? else {
            return Ok(JobEnd::Rest(wait::jittered(BUSY_WAIT)));
        };
        let renewing = async {
            loop {
                tokio::time::sleep(RENEWAL).await;
                // A new holder would ask a model for the same; versions decide which summary is
                // stored.
                let _ = lock.renew(HOLD).await;
            }
        };
        let ended = tokio::select! {
            biased;
            ended = self.locked() => ended,
            never = renewing => never,
        };
        if self.stop.is_cancelled() {
            self.give_up().await?;
        }
        // If this fails, the lock expires.
        let _ = lock.release().await;
        ended
    }

    /// Makes the attempt while holding the lock.
    async fn locked(&mut self) -> Result<JobEnd> {
        let backlog = self.look_anew().await?;
        self.publish_late(&backlog)?;
        if backlog.is_settled() {
            return Ok(JobEnd::Done);
        }
        self.warn(&backlog);
        let started = moves::started(backlog.state.checkpoint.health);
        if started.is_some() {
            let begin = |backlog: &Backlog| {
                let checkpoint = backlog.state.checkpoint.clone();
                let moves = moves::started(checkpoint.health).into_iter().collect();
                (checkpoint, moves)
            };
            if let Stored::Lost = self.store(&backlog.state, begin).await? {
                return Ok(JobEnd::Rest(wait::jittered(BUSY_WAIT)));
            }
        }
        let backlog = if started.is_some() {
            self.backlog().await?
        } else {
            backlog
        };
        if backlog.due == 0 {
            // The turns that failed are gone.
            return self.drained(&backlog, None).await;
        }
        let batch = Batch::read(self.shared, self.namespace, &backlog, &self.notes).await?;
        if batch.kept.is_empty() {
            return self.drained(&backlog, Some(&batch)).await;
        }
        match self.summarize(&backlog, &batch).await {
            Ok(summary) => self.succeeded(&backlog, &batch, summary).await,
            Err(NoSummary::Failed(error)) => self.failed(&backlog, &batch, error).await,
            Err(NoSummary::Stopped) => {
                if !self.stop.is_cancelled() {
                    self.shared
                        .counters
                        .summaries_discarded
                        .fetch_add(1, Ordering::Relaxed);
                }
                Ok(JobEnd::Done)
            }
        }
    }

    /// Ends a recovery when the memory is closed: nobody goes on with it.
    async fn give_up(&mut self) -> Result<()> {
        let backlog = self.look_anew().await?;
        if backlog.state.checkpoint.health == Health::Recovering {
            let end = |backlog: &Backlog| {
                let checkpoint = backlog.state.checkpoint.clone();
                let moves = moves::gave_up(checkpoint.health).into_iter().collect();
                (checkpoint, moves)
            };
            self.store(&backlog.state, end).await?;
        }
        Ok(())
    }

    /// Returns the wait that applies to requested attempts too.
    ///
    /// It is what the endpoint asks for, and at least the first wait after an earlier request.
    /// Repeated requests thus can't flood a failing endpoint.
    fn patience(&mut self, forced: bool) -> Option<Duration> {
        let now = Instant::now();
        let again_at = self
            .notes
            .forced_at
            .filter(|_| forced)
            .map(|at| at + self.shared.config.summarizer.retry_wait);
        let until = self
            .notes
            .not_before
            .max(again_at)
            .filter(|until| *until > now);
        if until.is_none() && forced {
            self.notes.forced_at = Some(now);
        }
        until.map(|until| until - now)
    }

    /// Returns the wait before the next attempt after failures that this worker did not see.
    ///
    /// They were failures of another process, or of this one before its restart.
    async fn rest(&mut self, state: &StoredState) -> Result<Option<Duration>> {
        let (failures, version) = (state.checkpoint.failures, state.checkpoint_version);
        if failures == 0 || self.notes.tried == version {
            return Ok(None);
        }
        let Some(failed_at) = self.shared.rows.checkpoint_at(self.namespace).await? else {
            return Ok(None);
        };
        // Once is enough, whatever the clocks say.
        self.notes.tried = version;
        let wait = wait::after(&self.shared.config.summarizer, failures, None);
        Ok(wait::remaining(wait, failed_at, self.shared.now()))
    }

    /// Asks the summarizer, again for half as much each time that a summary is over its limit.
    ///
    /// The last one is cut at the end of a sentence; its end is kept, because models append the
    /// newest turns last.
    async fn summarize(&self, backlog: &Backlog, batch: &Batch) -> Result<Summary, NoSummary> {
        let (config, counter) = (&self.shared.config, self.shared.counter);
        let (checkpoint, max_tokens) = (&backlog.state.checkpoint, config.summary_tokens());
        let goal = checkpoint.goal();
        let mut request = SummarizeRequest {
            // One that was restored, or made with other settings, may be too long for the model;
            // its row stays whole.
            previous_summary: counter.tail(&checkpoint.summary, max_tokens).into_owned(),
            turns: batch.turns(counter, &config.summarizer, &self.notes),
            goal: goal.map(|goal| {
                counter
                    .clamp(goal, strategies::goal_tokens(config))
                    .into_owned()
            }),
            max_tokens,
        };
        let mut asked = 1;
        loop {
            let text = self.ask(request.clone()).await?;
            let tokens = counter.count(&text);
            if tokens <= max_tokens {
                return Ok(Summary {
                    text,
                    cut_from: None,
                });
            }
            self.shared.counters.summary_failed(Failure::OverLimit);
            if asked == REQUESTS {
                let text = counter.tail(&text, max_tokens).into_owned();
                return Ok(Summary {
                    text,
                    cut_from: Some(tokens),
                });
            }
            asked += 1;
            request.max_tokens = (request.max_tokens / 2).max(1);
        }
    }

    /// Makes one request.
    async fn ask(&self, request: SummarizeRequest) -> Result<String, NoSummary> {
        let (shared, config) = (self.shared, &self.shared.config);
        let failed = |reason, detail: &str| {
            NoSummary::Failed(SummarizeError {
                reason,
                retry_after: None,
                detail: detail.to_owned(),
            })
        };
        let Some(summarizer) = shared.summarizer.clone() else {
            return Err(failed(Failure::Unavailable, "there is no summarizer"));
        };
        let identity = self.identity.clone();
        // Its own task: a summarizer that blocks or panics takes no worker with it.
        let mut call = AbortOnDropHandle::new(tokio::spawn(async move {
            summarizer.summarize(&identity, request).await
        }));
        let answer = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(NoSummary::Stopped),
            () = self.gone.cancelled() => Err(NoSummary::Stopped),
            () = tokio::time::sleep(config.summarizer.timeout) => Err(failed(Failure::Timeout, "no answer in time")),
            answer = &mut call => Ok(answer),
        };
        let response = match answer {
            Err(none) => {
                // The next request for this conversation waits for the end of this one, unless it
                // ignores the cancellation.
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
        Ok(summary.to_owned())
    }

    /// Commits a summary.
    async fn succeeded(
        &mut self,
        began: &Backlog,
        batch: &Batch,
        summary: Summary,
    ) -> Result<JobEnd> {
        let Summary {
            text: summary,
            cut_from,
        } = summary;
        let config = &self.shared.config;
        let counter = self.shared.counter;
        let summarised = batch.kept.len() as u64 + batch.unreadable;
        let mut more = false;
        let stored = self
            .store(&began.state, |backlog| {
                let unsummarised = backlog.unsummarised.saturating_sub(summarised);
                let head = &backlog.state.head;
                let gone = batch
                    .kept
                    .iter()
                    .filter(|kept| kept.id.seq < head.first)
                    .count() as u64;
                let base = backlog.state.checkpoint.base.clone();
                // Turns that retention removed meanwhile: the summary can't be rebuilt without
                // them.
                let grown = |base: Option<Base>| {
                    let gone = base.unwrap_or_default().gone + gone;
                    Base {
                        summary: summary.clone(),
                        through: batch.through,
                        gone,
                    }
                };
                let checkpoint = Checkpoint {
                    covers_through: batch.through,
                    base: if gone > 0 { Some(grown(base)) } else { base },
                    summary: summary.clone(),
                    summary_cut: cut_from.is_some() || backlog.state.checkpoint.summary_cut,
                    failures: cut_from.map_or(0, |_| REQUESTS),
                    last_failure: cut_from.map(|_| Failure::OverLimit.as_str().to_owned()),
                    ..backlog.state.checkpoint.clone()
                };
                let newest = backlog.newest(unsummarised);
                more = strategies::backlog(config, checkpoint.fixed(counter), unsummarised, newest)
                    > 0;
                let moves = match cut_from {
                    None => moves::succeeded(checkpoint.health, more),
                    Some(_) => moves::exhausted(checkpoint.health),
                };
                (checkpoint, moves)
            })
            .await?;
        match stored {
            Stored::At(version) => {
                // A cut summary is no reason to wait.
                self.notes.tried = version;
                if let Some(tokens) = cut_from {
                    self.shared.summary_cut(&self.identity, tokens);
                }
                self.shared
                    .counters
                    .summaries
                    .fetch_add(1, Ordering::Relaxed);
                self.shared
                    .recovery_dropped(&self.identity, "unreadable", batch.unreadable);
                // Grow slowly: the old size may still be too much.
                self.notes.shrink = self.notes.shrink.saturating_sub(1);
                (self.notes.clip, self.notes.alone) = (0, 0);
                Ok(if more { JobEnd::More } else { JobEnd::Done })
            }
            Stored::Lost => Ok(self.lost()),
        }
    }

    /// Skips unreadable turns, or ends the recovery.
    async fn drained(&mut self, began: &Backlog, batch: Option<&Batch>) -> Result<JobEnd> {
        let (shared, config) = (self.shared, &self.shared.config);
        let mut more = false;
        let stored = self
            .store(&began.state, |backlog| {
                let checkpoint = &backlog.state.checkpoint;
                let through = batch
                    .map_or(0, |batch| batch.through)
                    .max(checkpoint.covers_through);
                let unsummarised = if batch.is_some() {
                    backlog.unsummarised.saturating_sub(backlog.due)
                } else {
                    backlog.unsummarised
                };
                more = strategies::backlog(
                    config,
                    backlog.fixed(shared),
                    unsummarised,
                    backlog.newest(unsummarised),
                ) > 0;
                // This says nothing about a summarizer that failed.
                let recovers = checkpoint.health == Health::Recovering;
                let moves = if recovers {
                    moves::succeeded(checkpoint.health, more)
                } else {
                    Vec::new()
                };
                let mut checkpoint = Checkpoint {
                    covers_through: through,
                    ..checkpoint.clone()
                };
                if recovers && !more {
                    // A healthy conversation has no failures: the next one counts as the first.
                    (checkpoint.failures, checkpoint.last_failure) = (0, None);
                }
                (checkpoint, moves)
            })
            .await?;
        match stored {
            Stored::At(_) => {
                let unreadable = batch.map_or(0, |batch| batch.unreadable);
                self.shared
                    .recovery_dropped(&self.identity, "unreadable", unreadable);
                Ok(if more { JobEnd::More } else { JobEnd::Done })
            }
            Stored::Lost => Ok(JobEnd::Rest(wait::jittered(BUSY_WAIT))),
        }
    }

    /// Commits a failure.
    async fn failed(
        &mut self,
        began: &Backlog,
        batch: &Batch,
        error: SummarizeError,
    ) -> Result<JobEnd> {
        let config = &self.shared.config.summarizer;
        tracing::warn!(reason = error.reason.as_str(), detail = %error.detail, "a conversation was not summarised");
        self.shared.counters.summary_failed(error.reason);
        if error.reason.wants_less() {
            if batch.kept.len() > 1 {
                // Half of what was sent, which may be less than the limit.
                while config.batch_turns >> self.notes.shrink.min(63) >= batch.kept.len()
                    && self.notes.shrink < 63
                {
                    self.notes.shrink += 1;
                }
            } else {
                self.notes.alone = self.notes.alone.saturating_add(1);
                // The model read the turn and made nothing of it. Other failures may have other
                // causes, so the whole turn is sent more often before a part of it.
                let at_once = matches!(
                    error.reason,
                    Failure::TooLong | Failure::Truncated | Failure::Looping
                );
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
                (
                    Checkpoint {
                        failures,
                        last_failure,
                        ..checkpoint.clone()
                    },
                    moves,
                )
            })
            .await?;
        match stored {
            Stored::At(version) => {
                self.notes.tried = version;
                let asked = error
                    .retry_after
                    .map(|asked| asked.min(config.max_retry_wait.max(config.retry_wait)));
                self.notes.not_before = asked.and_then(|asked| Instant::now().checked_add(asked));
                Ok(JobEnd::Rest(wait::after(
                    config,
                    failures,
                    error.retry_after,
                )))
            }
            Stored::Lost => Ok(self.lost()),
        }
    }

    fn lost(&self) -> JobEnd {
        self.shared
            .counters
            .summaries_discarded
            .fetch_add(1, Ordering::Relaxed);
        // Never at once: the cause may remain, and each attempt costs a request.
        JobEnd::Rest(wait::jittered(BUSY_WAIT))
    }

    /// Warns once about a long backlog, until it is short again.
    fn warn(&mut self, backlog: &Backlog) {
        let config = &self.shared.config;
        let batches = backlog.due.div_ceil(config.summarizer.batch_turns as u64);
        let long = batches > config.recovery_backlog_max;
        if long && !self.notes.warned {
            self.shared
                .counters
                .long_backlogs
                .fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                turns = backlog.due,
                batches,
                "many turns of a conversation wait for a summary; none is dropped"
            );
        }
        self.notes.warned = long;
    }
}
