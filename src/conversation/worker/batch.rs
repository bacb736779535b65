//! What one request to the summarizer is made of.

use std::sync::Arc;

use super::backlog::Backlog;
use super::summarise::Notes;
use crate::config::SummarizerConfig;
use crate::error::Result;
use crate::rows::Kept;
use crate::shared_state::Shared;
use crate::tokens::Counter;
use crate::turn::ConversationTurn;

use helmdeck_memory::Namespace;

/// The fewest tokens that a turn is clipped to.
const LEAST: u64 = 64;

/// The oldest turns that are due.
pub(super) struct Batch {
    /// As they are kept; none if none of them opens.
    pub(super) kept: Vec<Kept>,
    /// The sequence number up to which the summary will reach.
    pub(super) through: u64,
    /// How many turns up to there do not open.
    pub(super) unreadable: u64,
}

impl Batch {
    /// Reads as many of the oldest turns that are due as one request may have.
    ///
    /// # Errors
    /// `Store`.
    pub(super) async fn read(
        shared_state: &Shared,
        namespace: &Namespace,
        backlog: &Backlog,
        notes: &Notes,
    ) -> Result<Self> {
        let config = &shared_state.config.summarizer;
        let most = (config.batch_turns >> notes.shrink.min(63)).max(1);
        let (mut kept, mut unreadable) =
            shared_state.rows.turns(namespace, backlog.from, backlog.through, most).await?;
        for kept in &mut kept {
            // What is sent is more than what a prompt shows.
            kept.tokens = shared_state.counter.sent(&kept.turn);
        }
        // Fewer than asked for: everything was read.
        let mut through = kept.last().filter(|_| kept.len() == most).map_or(backlog.through, |last| last.id.seq);
        let fitting = fitting(&kept, config.batch_tokens >> notes.shrink.min(63));
        if fitting < kept.len() {
            kept.truncate(fitting);
            through = kept.last().map_or(backlog.through, |last| last.id.seq);
            if unreadable > 0 {
                unreadable = shared_state.rows.turns(namespace, backlog.from, through, usize::MAX).await?.1;
            }
        }
        Ok(Self { kept, through, unreadable })
    }

    /// Returns how often the only turn is to be halved after one more failure. One that fails also when next to nothing of it is left
    /// is tried whole again: then it is not what it says.
    pub(super) fn clip_more(&self, config: &SummarizerConfig, clip: u32) -> u32 {
        let longest = self.kept.iter().map(|kept| kept.tokens).max().unwrap_or_default().min(config.batch_tokens);
        // As many halves as make a difference to this turn.
        let next = (clip + 1..64).find(|clip| config.batch_tokens >> clip < longest).unwrap_or(64);
        let least = LEAST.min(config.batch_tokens);
        let makes_less = longest > least && config.batch_tokens >> (next - 1).min(63) > least;
        if makes_less { next } else { 0 }
    }

    /// Returns the turns as they are sent: one that is too long for a request is clipped, the row keeps it whole.
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
fn fitting(kept: &[Kept], most: u64) -> usize {
    let mut tokens = 0_u64;
    let fit = kept.iter().take_while(|kept| {
        tokens = tokens.saturating_add(kept.tokens);
        tokens <= most
    });
    fit.count().max(1).min(kept.len())
}

/// Returns a turn whose two texts take at most so many tokens, and that says nothing else.
fn clipped(counter: Counter, turn: &ConversationTurn, most: u64) -> ConversationTurn {
    let (user, assistant) = (counter.count(&turn.user_message), counter.count(&turn.assistant_response));
    // Each has half; what one leaves is the other's.
    let half = most / 2;
    let for_user = user.min(half.max(most.saturating_sub(assistant)));
    let for_assistant = most.saturating_sub(for_user);
    ConversationTurn {
        user_message: counter.clamp(&turn.user_message, for_user).into_owned(),
        assistant_response: counter.clamp(&turn.assistant_response, for_assistant).into_owned(),
        timestamp: turn.timestamp.clone(),
        ..ConversationTurn::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ItemId;

    fn kept(seq: u64, tokens: u64) -> Kept {
        let id = ItemId { seq, nonce: 0 };
        Kept { id, tokens, bytes: 1, created_at: helmdeck_core::Timestamp(0), turn: Arc::default() }
    }

    #[test]
    fn as_many_turns_as_fit_and_at_least_one() {
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
        assert!(counter.turn(&clip) <= 200 && counter.turn(&clip) > 150, "{}", counter.turn(&clip));
        assert!(clip.user_message.starts_with("ask ask") && clip.assistant_response.starts_with("say say"));
        let short = ConversationTurn { user_message: "hello".to_owned(), ..turn };
        let clip = clipped(counter, &short, 200);
        assert_eq!(clip.user_message, "hello");
        assert!(counter.count(&clip.assistant_response) > 150, "what one leaves is the other's");
    }
}
