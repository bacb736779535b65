//! Sweep: finds expired conversations, waiting turns and orphaned rows.
//!
//! A conversation that needs nothing is not read again until it changes, so quiet conversations
//! cost one list of names.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::{Kind, Namespace, NamespaceStats};

use super::summarise::identity;
use super::{Due, WorkerState, wait};
use crate::config::Strategy;
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::rows::{StoredState, StoredTurn};
use crate::strategies;

/// Name of the lock that allows one sweeping process at a time.
pub(crate) const LOCK: &str = "conversation/sweep";
/// Lifetime of the lock; it is renewed before that.
const HOLD: Duration = Duration::from_secs(120);
/// Number of conversations between two renewals of the lock.
const PART: usize = 64;
/// Age of orphans to delete: no restore takes so long.
const AGE: Duration = Duration::from_secs(86_400);
/// Interval of re-reading a quiet conversation.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// Maximum remembered quiet conversations; others are read at each sweep.
const QUIET: usize = 1 << 18;
/// Delay of the first sweep, which finds turns that wait for a summary.
const SOON: Duration = Duration::from_secs(1);

/// The sweeping task.
pub(super) struct Sweeper {
    worker_state: Arc<WorkerState>,
    /// The quiet conversations.
    quiet: HashMap<u64, Quiet>,
    hasher: RandomState,
}

/// A conversation that needed nothing when it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Quiet {
    rows: u64,
    bytes: u64,
    /// When to read it again even if it is unchanged.
    until: Timestamp,
}

impl Sweeper {
    pub(super) fn new(worker_state: Arc<WorkerState>) -> Self {
        Self {
            worker_state,
            quiet: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Sweeps at intervals.
    pub(super) async fn run(mut self) {
        let config = &self.worker_state.shared.config;
        let interval = config.sweep_interval;
        let first = if config.strategy == Strategy::RollingSummary {
            interval.min(SOON)
        } else {
            interval
        };
        let mut next = wait::jittered(first);
        loop {
            tokio::select! {
                () = self.worker_state.stop.cancelled() => return,
                () = tokio::time::sleep(next) => {}
            }
            match self.sweep().await {
                Ok(()) | Err(ConversationError::Closed) => {}
                Err(error) => tracing::warn!(%error, "conversations could not be swept"),
            }
            next = wait::jittered(interval);
        }
    }

    /// Checks every conversation.
    ///
    /// # Errors
    /// `Store`: the others wait for the next sweep.
    async fn sweep(&mut self) -> Result<()> {
        let worker_state = Arc::clone(&self.worker_state);
        let store = worker_state.shared.rows.store();
        let Some(lock) = store.try_lock(LOCK, HOLD).await? else {
            return Ok(());
        };
        let mut all = store.namespaces().await?;
        all.retain(|stats| stats.kind == Kind::Conversation && stats.namespace.session.is_some());
        let mut quiet = HashMap::new();
        for part in all.chunks(PART) {
            if worker_state.stop.is_cancelled() || !lock.renew(HOLD).await? {
                break;
            }
            for stats in part {
                let name = self.hasher.hash_one(&stats.namespace);
                let known = self.quiet.get(&name).copied();
                let still = known.filter(|known| {
                    known.rows == stats.rows
                        && known.bytes == stats.bytes
                        && worker_state.shared.now() < known.until
                });
                let found = match still {
                    Some(still) => Some(still),
                    None => self.backlog(stats).await?,
                };
                if let Some(found) = found
                    && quiet.len() < QUIET
                {
                    quiet.insert(name, found);
                }
            }
            tokio::task::yield_now().await;
        }
        self.quiet = quiet;
        let _ = lock.release().await;
        Ok(())
    }

    /// Checks a conversation and does or queues its work; `None` if it must be checked again.
    async fn backlog(&self, stats: &NamespaceStats) -> Result<Option<Quiet>> {
        let (shared, namespace) = (&self.worker_state.shared, &stats.namespace);
        let quiet = |until| Quiet {
            rows: stats.rows,
            bytes: stats.bytes,
            until,
        };
        let state = match shared.rows.state(namespace).await {
            Ok(state) => state,
            // Only its user can repair it.
            Err(ConversationError::Corrupt(_)) => return Ok(Some(quiet(Timestamp::MAX))),
            Err(error) => return Err(error),
        };
        if state.head_version != 0 && !shared.is_live(&state) {
            self.end(namespace, &state).await?;
            return Ok(None);
        }
        let now = shared.now();
        let before = Timestamp(
            now.micros()
                .saturating_sub(i64::try_from(AGE.as_micros()).unwrap_or(i64::MAX)),
        );
        let orphans = shared.rows.orphans(namespace, &state.head, before).await?;
        if !orphans.dead.is_empty() {
            let rows = shared.rows.clean(namespace, &state, &orphans).await?;
            tracing::info!(rows, "removed what was left behind of conversations");
            return Ok(None);
        }
        let mut busy = false;
        if strategies::prune_due(&shared.config, &state.head) {
            self.worker_state.wake(namespace, Due::Prune);
            busy = true;
        }
        if self.waits(namespace, &state).await? {
            self.worker_state.wake(namespace, Due::Summarise);
            busy = true;
        }
        let ends = match state.touched_at {
            Some(touched) if !shared.config.ttl.is_zero() => {
                touched.saturating_add(shared.config.ttl)
            }
            _ => Timestamp::MAX,
        };
        // Rows and bytes may match by chance, so a conversation is quiet for a limited time.
        let again = if orphans.young {
            AGE.min(LOOK_AGAIN)
        } else {
            LOOK_AGAIN
        };
        let until = ends.min(now.saturating_add(again));
        Ok((!busy).then(|| quiet(until)))
    }

    /// Returns whether a conversation waits for a summary.
    async fn waits(&self, namespace: &Namespace, state: &StoredState) -> Result<bool> {
        let (config, checkpoint, head) = (
            &self.worker_state.shared.config,
            &state.checkpoint,
            &state.head,
        );
        if config.strategy != Strategy::RollingSummary || head.turns == 0 {
            return Ok(false);
        }
        if checkpoint.recovers() {
            return Ok(true);
        }
        let from = strategies::oldest_raw(config.strategy, head, checkpoint.covers_through);
        let unsummarised = (head.seq + 1).saturating_sub(from);
        if unsummarised > config.recent_turns as u64 {
            return Ok(true);
        }
        if config.budget_tokens == 0 || unsummarised < 2 {
            return Ok(false);
        }
        let counter = self.worker_state.shared.counter;
        let (kept, _) = self
            .worker_state
            .shared
            .rows
            .turns(namespace, from, head.seq, config.recent_turns)
            .await?;
        let newest_first = kept.iter().rev().map(StoredTurn::room);
        Ok(strategies::backlog(
            config,
            checkpoint.fixed(counter),
            kept.len() as u64,
            newest_first,
        ) > 0)
    }

    /// Removes a conversation that has ended.
    async fn end(&self, namespace: &Namespace, state: &StoredState) -> Result<()> {
        let shared = &self.worker_state.shared;
        let slot = shared.hot.slot(namespace);
        let _write_lock = slot.write_lock.lock().await;
        let ended = shared.rows.end(namespace, state).await;
        shared.hot.forget_slot(namespace, &slot);
        if ended? {
            self.worker_state.summaries.queue().forget(namespace);
            self.worker_state.prunes.queue().forget(namespace);
            let health = state.checkpoint.health;
            if health != Health::Healthy {
                // Subscribers to the health learn that this one starts anew.
                shared.health_changed(
                    &identity(namespace),
                    health,
                    Health::Healthy,
                    Reason::Flushed,
                )?;
            }
        }
        Ok(())
    }
}
