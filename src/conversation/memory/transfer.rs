//! Exports and imports conversations.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::{Namespace, StoreError};

use super::ConversationMemory;
use super::replace::{IfDamaged, Replacement};
use crate::config::{Config, OnOversize, Strategy};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::rows::{Base, Checkpoint, EncodedTurn, Head, Ops, StoredState, staging};
use crate::snapshot::{Record, Snapshot};
use crate::strategies::{oldest_raw, opening};
use crate::tokens::Counter;
use crate::turn::ConversationTurn;
use crate::turn_id::TurnId;
use crate::wire;
use crate::worker::Due;

/// Maximum turns of a batch: the store accepts 1024 operations.
const BATCH_TURNS: usize = 900;
/// Approximate maximum bytes of a batch.
const BATCH_BYTES: usize = 8 << 20;
/// Allowance for a snapshot's summary and keys, over the bytes of its turns.
const ENVELOPE_BYTES: u64 = 2 << 20;
/// Larger snapshots are parsed on a blocking thread.
const INLINE_BYTES: usize = 64 << 10;
/// Maximum time to stage turns: the sweep takes older ones for orphans after an hour.
const STAGING: Duration = Duration::from_secs(1800);
/// Maximum attempts of an export while the conversation changes.
const LOOKS: u32 = 20;

/// A parsed snapshot, ready to be written.
struct Incoming {
    record: Record,
    turns: Vec<EncodedTurn>,
}

impl ConversationMemory {
    /// Exports the conversation: the summary and every unsummarised turn.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn snapshot(&self, identity: &Identity) -> Result<Snapshot> {
        let namespace = &self.gate(identity, "snapshot")?;
        let shared = self.shared();
        let strategy = shared.config.strategy;
        if strategy == Strategy::None {
            return Ok(Snapshot {
                strategy: Some(strategy),
                bytes: Default::default(),
            });
        }
        let mut state = shared.visible(shared.rows.state(namespace).await?);
        for _ in 0..LOOKS {
            let oldest = oldest_raw(strategy, &state.head, state.checkpoint.covers_through);
            let (turns, unreadable) = shared
                .rows
                .turns(namespace, oldest, state.head.seq, usize::MAX)
                .await?;
            let after = shared.visible(shared.rows.state(namespace).await?);
            // Turns added meanwhile are left out. After a delete the read is repeated.
            if (after.head.generation, after.head.first)
                != (state.head.generation, state.head.first)
            {
                state = after;
                continue;
            }
            if unreadable > 0 {
                tracing::warn!(unreadable, "a snapshot leaves out turns that do not open");
            }
            let Checkpoint {
                summary,
                opening,
                pinned,
                other,
                ..
            } = state.checkpoint;
            let summary = if strategy == Strategy::RollingSummary {
                summary
            } else {
                String::new()
            };
            // An opening that these turns have is found in them again.
            let found = first_opening(
                &shared.config,
                shared.counter,
                &summary,
                turns.iter().map(|kept| &*kept.turn),
            );
            let record = Record {
                strategy,
                opening: opening.filter(|opening| found.as_ref() != Some(opening)),
                turns: turns
                    .into_iter()
                    .map(|kept| Arc::unwrap_or_clone(kept.turn))
                    .collect(),
                summary,
                pinned,
                other,
            };
            return Ok(Snapshot {
                strategy: Some(strategy),
                bytes: wire::write_record(&record).into(),
            });
        }
        Err(ConversationError::Contended)
    }

    /// Replaces a conversation by an exported one: all of it or, on an error, nothing.
    ///
    /// # Errors
    /// `InvalidSnapshot` for a snapshot of another strategy, or for data that is no snapshot;
    /// `TooLarge`, `Oversize`, `Contended`, `Store`.
    pub async fn restore(&self, identity: &Identity, snapshot: &Snapshot) -> Result<()> {
        let namespace = &self.gate(identity, "restore")?;
        let config = &self.shared().config;
        let strategy = config.strategy;
        if snapshot.strategy.is_some_and(|other| other != strategy) {
            return Err(other_strategy(
                snapshot.strategy.unwrap_or_default(),
                strategy,
            ));
        }
        if snapshot.bytes.is_empty() {
            return self.clear(identity, namespace, Reason::Restored).await;
        }
        let (bytes, limits, counter) = (
            snapshot.bytes.clone(),
            config.clone(),
            self.shared().counter,
        );
        let incoming = if bytes.len() > INLINE_BYTES {
            let reading = tokio::task::spawn_blocking(move || read(&bytes, &limits, counter));
            reading.await.map_err(StoreError::unavailable)??
        } else {
            read(&bytes, &limits, counter)?
        };
        if strategy == Strategy::None {
            return self.clear(identity, namespace, Reason::Restored).await;
        }
        // Finished even if the caller gives up: nothing stays half done.
        let (memory, identity, namespace) = (self.clone(), identity.clone(), namespace.clone());
        let task =
            tokio::spawn(async move { memory.settle(&identity, &namespace, incoming).await });
        task.await.map_err(StoreError::unavailable)?
    }

    /// Writes an import.
    async fn settle(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        incoming: Incoming,
    ) -> Result<()> {
        let bytes: usize = incoming.turns.iter().map(|fresh| fresh.json.len()).sum();
        let staged = if incoming.turns.len() > BATCH_TURNS || bytes > BATCH_BYTES {
            Some(self.stage(identity, namespace, &incoming).await?)
        } else {
            None
        };
        let done = self
            .replacement(identity, namespace, IfDamaged::Replace, |state| {
                self.arrival(namespace, state, &incoming, staged.as_deref())
                    .map(Some)
            })
            .await;
        if let (Err(error), Some(staged)) = (&done, &staged)
            && (!matches!(error, ConversationError::Store(_))
                || self.fence(namespace, staged).await)
        {
            self.unstage(namespace, staged).await;
        }
        done?;
        self.0.worker.wake(identity, Due::Summarise);
        Ok(())
    }

    /// Returns the content that replaces `state`.
    fn arrival(
        &self,
        namespace: &Namespace,
        state: &StoredState,
        incoming: &Incoming,
        staged: Option<&[TurnId]>,
    ) -> Result<Replacement> {
        let shared = self.shared();
        let mut replacement = Replacement::nothing(shared, namespace, state, Reason::Restored);
        let record = &incoming.record;
        let (through, turns) = match staged {
            Some(staged) => {
                let through = staged.first().map_or(0, |id| id.seq - 1);
                if through <= state.head.seq {
                    // Another restore used numbers above this one's.
                    return Err(ConversationError::Contended);
                }
                replacement.needs = Some((through + 1, through + staged.len() as u64));
                replacement.ops = Ops::new(namespace.clone());
                replacement.ops.clear_through(state.head.seq);
                (through, staged.len() as u64)
            }
            None => {
                // One number stands for the whole summary.
                let through = state.head.seq + 1;
                for (seq, fresh) in (through + 1..).zip(&incoming.turns) {
                    replacement
                        .ops
                        .put_turn(seq, fresh.value(TurnId::new(seq), shared.config.tokens));
                }
                (through, incoming.turns.len() as u64)
            }
        };
        let bytes = incoming
            .turns
            .iter()
            .map(|fresh| fresh.value_bytes(shared.config.tokens))
            .sum();
        replacement.head = Head {
            seq: through + turns,
            first: through + 1,
            turns,
            bytes,
            ..replacement.head
        };
        let checkpoint = &mut replacement.checkpoint;
        if !record.summary.is_empty() {
            checkpoint.covers_through = through;
            checkpoint.summary.clone_from(&record.summary);
            checkpoint.base = Some(Base {
                summary: record.summary.clone(),
                through,
                gone: 0,
            });
        }
        let turns = incoming.turns.iter().map(|fresh| &*fresh.turn);
        let found = || first_opening(&shared.config, shared.counter, &record.summary, turns);
        checkpoint.opening = record.opening.clone().or_else(found);
        checkpoint.pinned.clone_from(&record.pinned);
        checkpoint.other.clone_from(&record.other);
        Ok(replacement)
    }

    /// Stages turns: writes them above the head, where they are not visible, and returns their ids.
    async fn stage(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        incoming: &Incoming,
    ) -> Result<Vec<TurnId>> {
        let shared = self.shared();
        let start = shared.clock.monotonic();
        let state = self.footing(identity, namespace).await?;
        let first = staging(state.head.seq) + 1;
        let ids: Vec<TurnId> = (first..)
            .take(incoming.turns.len())
            .map(TurnId::new)
            .collect();
        let mut ops = Ops::new(namespace.clone());
        let mut bytes = 0;
        let mut turns = ids.iter().zip(&incoming.turns).peekable();
        while let Some((id, fresh)) = turns.next() {
            ops.put_turn(id.seq, fresh.value(*id, shared.config.tokens));
            bytes += fresh.json.len();
            if turns.peek().is_none() || ops.len() == BATCH_TURNS || bytes > BATCH_BYTES {
                let batch = std::mem::replace(&mut ops, Ops::new(namespace.clone()));
                bytes = 0;
                let late = shared.clock.monotonic().saturating_sub(start) > STAGING;
                let written = if late {
                    Err(ConversationError::Contended)
                } else {
                    shared.rows.aside(batch).await
                };
                if let Err(error) = written {
                    self.unstage(namespace, &ids).await;
                    return Err(error);
                }
            }
        }
        Ok(ids)
    }

    /// Returns the state of a readable conversation, after starting one if there is none.
    ///
    /// With a head in place, a concurrent delete of staged turns replaces or removes it, and is
    /// noticed.
    async fn footing(&self, identity: &Identity, namespace: &Namespace) -> Result<StoredState> {
        let shared = self.shared();
        let damaged = match shared.rows.state(namespace).await {
            Ok(state) if state.head_version != 0 && shared.is_live(&state) => return Ok(state),
            Ok(_) => false,
            Err(ConversationError::Corrupt(_)) => true,
            Err(error) => return Err(error),
        };
        self.replacement(identity, namespace, IfDamaged::Replace, |state| {
            let live = state.head_version != 0 && shared.is_live(state);
            if live && !(damaged && state.head.turns == 0) {
                // Another writer was faster.
                return Ok(None);
            }
            let mut replacement = Replacement::nothing(shared, namespace, state, Reason::Flushed);
            replacement.reason = replacement
                .reason
                .filter(|_| state.checkpoint.health != Health::Healthy);
            Ok(Some(replacement))
        })
        .await?;
        shared.rows.state(namespace).await
    }

    /// Makes sure that an unacknowledged restore can't succeed later.
    ///
    /// Returns `false` if it did succeed, or that is unknown.
    async fn fence(&self, namespace: &Namespace, staged: &[TurnId]) -> bool {
        let shared = self.shared();
        let slot = shared.hot.slot(namespace);
        let _write_lock = slot.write_lock.lock().await;
        let Ok(state) = shared.rows.state(namespace).await else {
            return false;
        };
        if state.head_version == 0
            || staged
                .first()
                .is_none_or(|first| state.head.seq >= first.seq)
        {
            return false;
        }
        // The restore expects the version that this replaces.
        let fenced = shared
            .rows
            .replace(&state, Some(&state.head), None, Ops::new(namespace.clone()))
            .await;
        shared.hot.forget_slot(namespace, &slot);
        matches!(fenced, Ok(Some(_)))
    }

    /// Removes staged turns. The sweep removes them if that fails.
    async fn unstage(&self, namespace: &Namespace, ids: &[TurnId]) {
        for ids in ids.chunks(BATCH_TURNS) {
            let mut ops = Ops::new(namespace.clone());
            ids.iter().for_each(|id| ops.delete_turn(id.seq));
            if let Err(error) = self.shared().rows.aside(ops).await {
                tracing::warn!(%error, "turns of a restore that failed are left to the sweep");
                return;
            }
        }
    }
}

/// Returns the opening that the turns of a snapshot have.
///
/// With a summary, the turns before them may have had another one.
fn first_opening<'a>(
    config: &Config,
    counter: Counter,
    summary: &str,
    mut turns: impl Iterator<Item = &'a ConversationTurn>,
) -> Option<String> {
    if summary.is_empty() {
        turns.find_map(|turn| opening(config, counter, turn))
    } else {
        None
    }
}

/// Parses a snapshot and counts tokens.
fn read(bytes: &[u8], config: &Config, counter: Counter) -> Result<Incoming> {
    let strategy = config.strategy;
    let most = config.max_bytes.saturating_add(ENVELOPE_BYTES);
    let mut record = wire::read_record(bytes, most, config.max_turns)?;
    if record.strategy != strategy {
        return Err(other_strategy(record.strategy, strategy));
    }
    let invalid =
        |what: &str| ConversationError::InvalidSnapshot(format!("{strategy} keeps no {what}"));
    if strategy == Strategy::None && !record.turns.is_empty() {
        return Err(invalid("turns"));
    }
    if strategy != Strategy::RollingSummary && !record.summary.is_empty() {
        return Err(invalid("summary"));
    }
    let (budget, limit) = (config.budget_tokens, config.max_turn_bytes);
    let turns = std::mem::take(&mut record.turns).into_iter().map(|turn| {
        let (json, tokens) = (wire::write_turn(&turn), counter.turn(&turn));
        let size = json.len() as u64;
        if size > limit {
            return Err(ConversationError::TooLarge {
                what: "turn",
                size,
                limit,
                unit: "bytes",
            });
        }
        if budget > 0 && tokens > budget && config.on_oversize == OnOversize::Refuse {
            return Err(ConversationError::Oversize { tokens, budget });
        }
        Ok(EncodedTurn {
            turn: Arc::new(turn),
            tokens,
            json: json.into(),
        })
    });
    let turns = turns.collect::<Result<Vec<_>>>()?;
    Ok(Incoming { record, turns })
}

fn other_strategy(snapshot: Strategy, configured: Strategy) -> ConversationError {
    ConversationError::InvalidSnapshot(format!(
        "it is of {snapshot}, and this memory is {configured}"
    ))
}
