//! Lists, shows and deletes turns.

use std::sync::Arc;

use helmdeck_events::EventKind;
use helmdeck_memory::Namespace;
use tokio::time::Instant;

use super::ConversationMemory;
use super::add::PATIENCE;
use super::replace::{IfDamaged, Replacement};
use crate::config::Strategy;
use crate::error::{ConversationError, Result};
use crate::identity::Identity;
use crate::render::Format;
use crate::rows::{Head, Ops, StoredState, StoredTurn};
use crate::strategies;
use crate::turn::ConversationTurn;
use crate::turn_id::TurnId;
use crate::views::{Deleted, Trace, TurnDetail, TurnFilter, TurnInfo, TurnPage};
use crate::worker::Due;

/// Maximum turns of a page.
const MAX_PAGE: usize = 200;
/// Default turns of a page.
const PAGE: usize = 50;
/// Number of turns per read.
const STRIDE: u64 = 100;
/// Number of turns searched for one page. The next page continues the search.
const LOOKED_AT: usize = 5000;
/// Minimum cost of a read in turns, since most turns of a range may be deleted.
const EMPTY: usize = 25;
/// Maximum stored bytes of a page with texts; one turn is always listed.
const TEXTS: u64 = 1 << 20;
/// Number of oldest turns among which a new opening is looked for.
const OPENING_AMONG: usize = 16;

/// Checks the page size.
///
/// # Errors
/// `Invalid`.
pub(super) fn page_size(limit: Option<usize>) -> Result<usize> {
    match limit {
        None => Ok(PAGE),
        Some(limit) if (1..=MAX_PAGE).contains(&limit) => Ok(limit),
        Some(_) => Err(ConversationError::Invalid(format!(
            "limit must be 1 to {MAX_PAGE}"
        ))),
    }
}

impl ConversationMemory {
    /// Lists turns, newest first.
    ///
    /// # Errors
    /// `Invalid` for an invalid limit; `Corrupt`, `Store`.
    pub async fn list_turns(&self, identity: &Identity, filter: &TurnFilter) -> Result<TurnPage> {
        let namespace = &self.gate(identity, "list_items")?;
        let limit = page_size(filter.limit)?;
        if self.keeps_nothing() {
            return Ok(TurnPage::default());
        }
        let shared = self.shared();
        let state = shared.visible(shared.rows.state(namespace).await?);
        let needle = filter
            .content_search
            .as_deref()
            .filter(|text| !text.is_empty())
            .map(str::to_lowercase);
        let mut page = TurnPage {
            total: state.head.turns,
            ..TurnPage::default()
        };
        let mut above = filter.after.map_or(state.head.seq + 1, |after| {
            after.seq.min(state.head.seq + 1)
        });
        let (mut looked_at, mut texts) = (0, 0);
        while above > state.head.first {
            let from = above.saturating_sub(STRIDE).max(state.head.first);
            let (turns, unreadable) = shared
                .rows
                .turns(namespace, from, above - 1, usize::MAX)
                .await?;
            page.unreadable += unreadable;
            above = from;
            looked_at += turns.len().max(EMPTY);
            for kept in turns.iter().rev() {
                let mut item = self.item(&state, kept);
                let fits = filter.folded.is_none_or(|folded| folded == item.folded)
                    && needle
                        .as_ref()
                        .is_none_or(|needle| holds(&kept.turn, needle));
                if fits {
                    if filter.with_texts {
                        texts += kept.bytes;
                        if let Some(last) = page.items.last().filter(|_| texts > TEXTS) {
                            page.next = Some(last.key);
                            return Ok(page);
                        }
                        item.value = Some(Arc::clone(&kept.turn));
                    }
                    page.items.push(item);
                }
                if page.items.len() == limit {
                    page.next = (kept.id.seq > state.head.first).then_some(kept.id);
                    return Ok(page);
                }
            }
            if looked_at >= LOOKED_AT {
                // A number without a turn is a valid mark too.
                let oldest = turns.first().map_or(
                    TurnId {
                        seq: from,
                        nonce: 0,
                    },
                    |kept| kept.id,
                );
                page.next = Some(oldest).filter(|id| id.seq > state.head.first);
                return Ok(page);
            }
        }
        Ok(page)
    }

    fn item(&self, state: &StoredState, kept: &StoredTurn) -> TurnInfo {
        let strategy = self.shared().config.strategy;
        TurnInfo {
            key: kept.id,
            strategy,
            timestamp: kept.turn.timestamp.as_str().to_owned(),
            created_at: kept.created_at,
            size_bytes: kept.bytes,
            tokens: kept.tokens,
            folded: strategy == Strategy::RollingSummary
                && kept.id.seq <= state.checkpoint.covers_through,
            value: None,
        }
    }

    /// Reads a turn by its id.
    async fn kept(&self, namespace: &Namespace, key: &str) -> Result<(StoredState, StoredTurn)> {
        let id = TurnId::parse(key)
            .filter(|_| !self.keeps_nothing())
            .ok_or(ConversationError::NotFound)?;
        let shared = self.shared();
        let state = shared.visible(shared.rows.state(namespace).await?);
        if !(state.head.first..=state.head.seq).contains(&id.seq) {
            return Err(ConversationError::NotFound);
        }
        let (mut turns, _) = shared.rows.turns(namespace, id.seq, id.seq, 1).await?;
        let kept = turns
            .pop()
            .filter(|kept| kept.id == id)
            .ok_or(ConversationError::NotFound)?;
        Ok((state, kept))
    }

    /// Returns a turn by its id.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt`, `Store`.
    pub async fn get_turn(&self, identity: &Identity, key: &str) -> Result<TurnDetail> {
        let namespace = &self.gate(identity, "get_item")?;
        let (state, kept) = self.kept(namespace, key).await?;
        Ok(TurnDetail {
            item: self.item(&state, &kept),
            turn: kept.turn,
        })
    }

    /// Deletes a turn, with the event `memory.item_deleted`.
    ///
    /// If it is in the summary, the summary is rebuilt from the remaining turns, so that nothing of
    /// it remains.
    ///
    /// # Errors
    /// `NotFound`; `Contended`, `Corrupt`, `Store`.
    pub async fn delete_turn(&self, identity: &Identity, key: &str) -> Result<Deleted> {
        let namespace = &self.gate(identity, "delete_item")?;
        let give_up = Instant::now() + PATIENCE;
        let rebuilt = std::sync::atomic::AtomicBool::new(false);
        let head = loop {
            let (seen, kept) = self.kept(namespace, key).await?;
            let opening = self.opening_without(namespace, &seen, &kept).await?;
            let done = self.replacement(identity, namespace, IfDamaged::Refuse, |state| {
                if state.head.generation != seen.head.generation {
                    // The turn may be gone, and its number reused.
                    return Err(ConversationError::Contended);
                }
                let (replacement, rebuilds) =
                    self.without(identity, namespace, state, &kept, opening.clone())?;
                rebuilt.store(rebuilds, std::sync::atomic::Ordering::Relaxed);
                Ok(Some(replacement))
            });
            match done.await {
                Err(ConversationError::Contended) if Instant::now() < give_up => {}
                done => break done?.ok_or(ConversationError::NotFound)?,
            }
        };
        let summary_rebuilt = rebuilt.into_inner();
        if summary_rebuilt {
            self.0.worker.wake(identity, Due::Summarise);
        }
        Ok(Deleted {
            deleted: true,
            remaining_turns: head.turns,
            summary_rebuilt,
        })
    }

    /// Returns the opening of a conversation after a turn was deleted.
    async fn opening_without(
        &self,
        namespace: &Namespace,
        seen: &StoredState,
        kept: &StoredTurn,
    ) -> Result<Option<String>> {
        let opening = seen.checkpoint.opening.clone();
        if !opening
            .as_deref()
            .is_some_and(|opening| strategies::is_opening_of(opening, &kept.turn))
        {
            return Ok(opening);
        }
        let shared = self.shared();
        let (oldest, _) = shared
            .rows
            .turns(namespace, seen.head.first, seen.head.seq, OPENING_AMONG)
            .await?;
        let mut others = oldest.iter().filter(|other| other.id != kept.id);
        Ok(others
            .find_map(|other| strategies::opening(&shared.config, shared.counter, &other.turn)))
    }

    /// Returns the conversation without a turn, and whether its summary must be rebuilt.
    fn without(
        &self,
        identity: &Identity,
        namespace: &Namespace,
        state: &StoredState,
        kept: &StoredTurn,
        opening: Option<String>,
    ) -> Result<(Replacement, bool)> {
        let shared = self.shared();
        let seq = kept.id.seq;
        let former = &state.head;
        if !shared.is_live(state)
            || !(former.first..=former.seq).contains(&seq)
            || former.turns == 0
        {
            return Err(ConversationError::NotFound);
        }
        let turns = former.turns - 1;
        let head = Head {
            seq: former.seq,
            first: match turns {
                0 => former.seq + 1,
                _ if seq == former.first => seq + 1,
                _ => former.first,
            },
            turns,
            bytes: former.bytes.saturating_sub(kept.bytes),
            generation: former.generation + 1,
        };
        let mut checkpoint = state.checkpoint.clone();
        checkpoint.generation = head.generation;
        checkpoint.opening = opening;
        let rebuilds = seq <= checkpoint.covers_through;
        let mut lost = 0;
        if rebuilds {
            // Back to the base of the summary; it is rebuilt from there.
            let base = checkpoint.base.take();
            lost = base
                .as_ref()
                .filter(|base| seq <= base.through)
                .map_or(0, |base| base.gone.max(1));
            checkpoint.base = base.filter(|base| seq > base.through);
            let (summary, through) = checkpoint
                .base
                .as_ref()
                .map_or_else(Default::default, |base| {
                    (base.summary.clone(), base.through)
                });
            (checkpoint.summary, checkpoint.covers_through) = (summary, through);
            checkpoint.summary_cut &= checkpoint.base.is_some();
        }
        let mut ops = Ops::new(namespace.clone());
        ops.delete_turn(seq);
        let event = EventKind::MemoryItemDeleted {
            who: identity.who(),
            key: kept.id.to_string(),
        };
        Ok((
            Replacement {
                head,
                checkpoint,
                ops,
                reason: None,
                event: Some(event),
                lost,
                needs: None,
            },
            rebuilds,
        ))
    }

    /// Returns what the strategy makes of the conversation right now.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub async fn trace(&self, identity: &Identity) -> Result<Trace> {
        let namespace = self.gate(identity, "trace")?;
        let (patch, cached) = self.rendered(identity, &namespace, Format::Json).await?;
        let (head, checkpoint) = (&cached.state.head, &cached.state.checkpoint);
        let rolling = self.summarises();
        Ok(Trace {
            strategy: patch.strategy,
            summary: patch.summary,
            recent_turn_count: patch.recent_turns.len() as u64,
            estimated_tokens: patch.tokens,
            health: self.health_of(&cached.state),
            kept_turns: head.turns,
            kept_bytes: head.bytes,
            backlog_turns: cached.backlog(&self.shared().config),
            omitted_turns: patch.omitted_turns,
            covers_through: if rolling {
                checkpoint.covers_through
            } else {
                0
            },
            generation: head.generation,
            failures: if rolling { checkpoint.failures } else { 0 },
            last_failure: checkpoint.last_failure.clone().filter(|_| rolling),
        })
    }
}

/// Returns whether a text of the turn contains the needle, which is in lower case.
fn holds(turn: &ConversationTurn, needle: &str) -> bool {
    let digest = turn.trajectory_digest.iter().flat_map(|digest| {
        let lists = [&digest.tools_invoked, &digest.artifacts_refs]
            .into_iter()
            .flatten()
            .flatten();
        lists.map(String::as_str).chain([
            digest.observations_summary.as_str(),
            digest.reasoning_summary.as_str(),
        ])
    });
    let texts = [turn.user_message.as_str(), turn.assistant_response.as_str()];
    let refs = turn
        .artifacts_hidden_refs
        .iter()
        .flatten()
        .map(String::as_str);
    texts
        .into_iter()
        .chain(digest)
        .chain(refs)
        .any(|text| text.to_lowercase().contains(needle))
}
