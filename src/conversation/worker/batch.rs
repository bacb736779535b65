//! The turns of one request to the summarizer.

use std::sync::Arc;

use super::attempt::Notes;
use super::backlog::Backlog;
use crate::config::SummarizerConfig;
use crate::error::Result;
use crate::rows::StoredTurn;
use crate::shared::Shared;
use crate::tokens::Counter;
use crate::turn::ConversationTurn;

use helmdeck_memory::Namespace;

/// Minimum tokens of a clipped turn.
const LEAST: u64 = 64;

/// The oldest due turns.
pub(super) struct Batch {
    /// The readable ones.
    pub(super) kept: Vec<StoredTurn>,
    /// Sequence number of the last turn that the summary will cover.
    pub(super) through: u64,
    /// Number of unreadable turns up to there.
    pub(super) unreadable: u64,
}

impl Batch {
    /// Reads the oldest due turns, as many as fit into one request.
    pub(super) async fn read(
        shared: &Shared,
        namespace: &Namespace,
        backlog: &Backlog,
        notes: &Notes,
    ) -> Result<Self> {
        let config = &shared.config.summarizer;
        let most = (config.batch_turns >> notes.shrink.min(63)).max(1);
        let (mut kept, mut unreadable) = shared
            .rows
            .turns(namespace, backlog.from, backlog.through, most)
            .await?;
        for kept in &mut kept {
            // A request contains more of a turn than a prompt.
            kept.tokens = shared.counter.sent(&kept.turn);
        }
        // Fewer than requested: all were read.
        let mut through = kept
            .last()
            .filter(|_| kept.len() == most)
            .map_or(backlog.through, |last| last.id.seq);
        let fitting = fitting(&kept, config.batch_tokens >> notes.shrink.min(63));
        if fitting < kept.len() {
            kept.truncate(fitting);
            through = kept.last().map_or(backlog.through, |last| last.id.seq);
            if unreadable > 0 {
                unreadable = shared
                    .rows
                    .turns(namespace, backlog.from, through, usize::MAX)
                    .await?
                    .1;
            }
        }
        Ok(Self {
            kept,
            through,
            unreadable,
        })
    }

    /// Returns how often to halve the only turn after one more failure.
    ///
    /// If it fails when almost nothing is left, it is sent whole again: then its text is not the
    /// cause.
    pub(super) fn clip_more(&self, config: &SummarizerConfig, clip: u32) -> u32 {
        let longest = self
            .kept
            .iter()
            .map(|kept| kept.tokens)
            .max()
            .unwrap_or_default()
            .min(config.batch_tokens);
        // Enough halvings to make a difference to this turn.
        let next = (clip + 1..64)
            .find(|clip| config.batch_tokens >> clip < longest)
            .unwrap_or(64);
        let least = LEAST.min(config.batch_tokens);
        let makes_less = longest > least && config.batch_tokens >> (next - 1).min(63) > least;
        if makes_less { next } else { 0 }
    }

    /// Returns the turns to send. A turn that is too long for a request is clipped; its row stays
    /// whole.
    pub(super) fn turns(
        &self,
        counter: Counter,
        config: &SummarizerConfig,
        notes: &Notes,
    ) -> Vec<Arc<ConversationTurn>> {
        let most = (config.batch_tokens >> notes.clip.min(63)).max(LEAST.min(config.batch_tokens));
        match &self.kept[..] {
            [only] if only.tokens > most => vec![Arc::new(clipped(counter, &only.turn, most))],
            all => all.iter().map(|kept| Arc::clone(&kept.turn)).collect(),
        }
    }
}

/// Returns how many of the turns fit; at least one.
fn fitting(kept: &[StoredTurn], most: u64) -> usize {
    let mut tokens = 0_u64;
    let fit = kept.iter().take_while(|kept| {
        tokens = tokens.saturating_add(kept.tokens);
        tokens <= most
    });
    fit.count().max(1).min(kept.len())
}

/// Returns a turn with its two texts clipped to a total of `most` tokens, and nothing else.
fn clipped(counter: Counter, turn: &ConversationTurn, most: u64) -> ConversationTurn {
    let (user, assistant) = (
        counter.count(&turn.user_message),
        counter.count(&turn.assistant_response),
    );
    // Each gets half, and what the other leaves.
    let half = most / 2;
    let for_user = user.min(half.max(most.saturating_sub(assistant)));
    let for_assistant = most.saturating_sub(for_user);
    ConversationTurn {
        user_message: counter.clamp(&turn.user_message, for_user).into_owned(),
        assistant_response: counter
            .clamp(&turn.assistant_response, for_assistant)
            .into_owned(),
        timestamp: turn.timestamp.clone(),
        ..ConversationTurn::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn_id::TurnId;

    fn kept(seq: u64, tokens: u64) -> StoredTurn {
        let id = TurnId { seq, nonce: 0 };
        StoredTurn {
            id,
            tokens,
            bytes: 1,
            created_at: helmdeck_core::Timestamp(0),
            turn: Arc::default(),
        }
    }

    #[test]
    fn batch_has_fitting_turns_at_least_one() {
        let all = [kept(1, 10), kept(2, 10), kept(3, 10)];
        assert_eq!(fitting(&all, 20), 2);
        assert_eq!(fitting(&all, 30), 3);
        assert_eq!(fitting(&all, 1), 1, "a turn too long would never be folded");
        assert_eq!(fitting(&[], 1), 0);
    }

    #[test]
    fn a_clipped_turn_says_something_of_both_texts() {
        let counter = Counter::Chars;
        let long = |word: &str| word.repeat(4_000);
        let turn = ConversationTurn {
            user_message: long("ask "),
            assistant_response: long("say "),
            artifacts_hidden_refs: Some(vec![long("ref")]),
            ..ConversationTurn::default()
        };
        let clip = clipped(counter, &turn, 200);
        assert!(
            counter.turn(&clip) <= 200 && counter.turn(&clip) > 150,
            "{}",
            counter.turn(&clip)
        );
        assert!(
            clip.user_message.starts_with("ask ask")
                && clip.assistant_response.starts_with("say say")
        );
        let short = ConversationTurn {
            user_message: "hello".to_owned(),
            ..turn
        };
        let clip = clipped(counter, &short, 200);
        assert_eq!(clip.user_message, "hello");
        assert!(
            counter.count(&clip.assistant_response) > 150,
            "what one leaves is the other's"
        );
    }
}
