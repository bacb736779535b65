//! Retention: removes the oldest turns over the limits.

use helmdeck_memory::Namespace;

use super::fair_queue::JobEnd;
use super::summarise::identity;
use crate::config::{Config, Strategy};
use crate::error::Result;
use crate::rows::{Base, Checkpoint, Head, Ops, StoredState, encoding};
use crate::shared::Shared;

/// Maximum turns removed by a batch.
const CHUNK: usize = 256;

/// A turn that may be removed.
struct Old {
    seq: u64,
    bytes: u64,
}

/// The turns to remove.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cut {
    /// Their sequence numbers, ascending.
    gone: Vec<u64>,
    bytes: u64,
    /// The exceeded limit, in one fixed word.
    reason: &'static str,
}

/// Removes the oldest turns of a conversation, one batch at a time, until it is within its limits.
pub(super) async fn prune(shared: &Shared, namespace: &Namespace) -> Result<JobEnd> {
    let slot = shared.hot.slot(namespace);
    let _write_lock = slot.write_lock.lock().await;
    let state = shared.rows.state(namespace).await?;
    if !shared.is_live(&state) {
        return Ok(JobEnd::Done);
    }
    let head = &state.head;
    let cut = Cut::of(&shared.config, head, oldest(shared, namespace, head).await?);
    let Some(last) = cut.gone.last() else {
        return Ok(JobEnd::Done);
    };
    let mut ops = Ops::new(namespace.clone());
    cut.gone.iter().for_each(|seq| ops.delete_turn(*seq));
    let new = Head {
        first: last + 1,
        turns: head.turns.saturating_sub(cut.gone.len() as u64),
        bytes: head.bytes.saturating_sub(cut.bytes),
        ..head.clone()
    };
    let checkpoint = rebased(&state, &cut.gone);
    let done = shared
        .rows
        .replace(&state, Some(&new), checkpoint.as_ref(), ops)
        .await;
    shared.hot.forget_slot(namespace, &slot);
    if done?.is_some() && shared.config.strategy == Strategy::RollingSummary {
        let uncovered = cut
            .gone
            .iter()
            .filter(|seq| **seq > state.checkpoint.covers_through)
            .count();
        shared.recovery_dropped(&identity(namespace), cut.reason, uncovered as u64);
    }
    // Another writer was faster, or more turns must go: look again.
    Ok(JobEnd::More)
}

/// Returns the oldest turns, readable or not, without the newest.
async fn oldest(shared: &Shared, namespace: &Namespace, head: &Head) -> Result<Vec<Old>> {
    let last = head.seq.saturating_sub(1);
    let (kept, unreadable) = shared
        .rows
        .turns(namespace, head.first, last, CHUNK)
        .await?;
    let mut oldest: Vec<Old> = kept
        .iter()
        .map(|kept| Old {
            seq: kept.id.seq,
            bytes: kept.bytes,
        })
        .collect();
    if unreadable > 0 {
        let through = kept
            .last()
            .filter(|_| kept.len() == CHUNK)
            .map_or(last, |newest| newest.id.seq);
        let there = shared
            .rows
            .keys(namespace, encoding::TURNS, head.first, through)
            .await?;
        let closed = there
            .into_iter()
            .filter(|seq| kept.binary_search_by_key(seq, |kept| kept.id.seq).is_err());
        oldest.extend(closed.map(|seq| Old { seq, bytes: 0 }));
        oldest.sort_unstable_by_key(|old| old.seq);
        oldest.truncate(CHUNK);
    }
    Ok(oldest)
}

/// Returns the checkpoint with the base that can't be rebuilt once these turns are gone.
///
/// Returns `None` if it is unchanged.
fn rebased(state: &StoredState, gone: &[u64]) -> Option<Checkpoint> {
    let checkpoint = &state.checkpoint;
    let covered = gone
        .iter()
        .filter(|seq| **seq <= checkpoint.covers_through)
        .count() as u64;
    if covered == 0 {
        return None;
    }
    let mut base = checkpoint.base.clone().unwrap_or_default();
    if gone
        .iter()
        .any(|seq| (base.through + 1..=checkpoint.covers_through).contains(seq))
    {
        // The whole summary becomes the base, so that it isn't rewritten for every removed turn.
        base = Base {
            summary: checkpoint.summary.clone(),
            through: checkpoint.covers_through,
            ..base
        }
    }
    base.gone += covered;
    Some(Checkpoint {
        base: Some(base),
        ..checkpoint.clone()
    })
}

impl Cut {
    fn of(config: &Config, head: &Head, oldest: Vec<Old>) -> Self {
        let mut cut = Self::default();
        for old in oldest {
            let many = head.turns - cut.gone.len() as u64 > config.max_turns;
            if !many && head.bytes.saturating_sub(cut.bytes) <= config.max_bytes {
                break;
            }
            if cut.reason.is_empty() {
                cut.reason = if many { "max_turns" } else { "max_bytes" };
            }
            cut.gone.push(old.seq);
            cut.bytes += old.bytes;
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(count: u64) -> Vec<Old> {
        (1..=count).map(|seq| Old { seq, bytes: 100 }).collect()
    }

    fn head(turns: u64) -> Head {
        Head {
            seq: turns,
            first: 1,
            turns,
            bytes: turns * 100,
            generation: 1,
        }
    }

    #[test]
    fn oldest_turns_go_down_to_limit() {
        let config = Config {
            max_turns: 7,
            max_bytes: 500,
            ..Config::default()
        };
        let cut = Cut::of(&config, &head(10), old(9));
        assert_eq!(
            cut,
            Cut {
                gone: vec![1, 2, 3, 4, 5],
                bytes: 500,
                reason: "max_turns"
            }
        );
        let config = Config {
            max_turns: 10,
            ..config
        };
        assert_eq!(Cut::of(&config, &head(10), old(9)).reason, "max_bytes");
        let config = Config {
            max_turns: 10,
            max_bytes: 1000,
            ..config
        };
        assert_eq!(Cut::of(&config, &head(10), old(9)), Cut::default());
    }

    #[test]
    fn a_summary_whose_turns_go_becomes_the_base() {
        let covered = |covers_through, base| StoredState {
            checkpoint: Checkpoint {
                covers_through,
                summary: "all of it".to_owned(),
                base,
                ..Checkpoint::default()
            },
            ..StoredState::default()
        };
        let base = |text: &str, through, gone| {
            Some(Base {
                summary: text.to_owned(),
                through,
                gone,
            })
        };
        let of =
            |base, gone: &[u64]| rebased(&covered(5, base), gone).map(|checkpoint| checkpoint.base);
        assert!(of(None, &[1, 2]).unwrap() == base("all of it", 5, 2));
        assert!(of(base("old", 3, 2), &[3, 4]).unwrap() == base("all of it", 5, 4));
        let same = of(base("old", 3, 1), &[2, 3]).unwrap();
        assert!(
            same == base("old", 3, 3),
            "those are not needed to make the rest anew"
        );
        assert!(of(None, &[6, 7]).is_none(), "no turn of the summary goes");
        assert!(rebased(&covered(0, None), &[1]).is_none());
    }
}
