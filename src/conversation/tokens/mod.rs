//! Token counters.
//!
//! - `chars` (the default) estimates by characters, like the original's bytes/4 + 1, but not three
//!   times too many for Chinese: an ASCII character counts a quarter of a token, one of Chinese,
//!   Japanese or Korean and everything beyond the basic plane (most emoji) a whole one, any other a
//!   half; and one more per text. It costs next to nothing and knows no model. Against `o200k_base`
//!   it is right for English and code, 10 to 50 % too high for most other languages, a fifth too
//!   low for emoji, and less than half of the truth for hex and base64. Too high leaves room
//!   unused; too low may send a model more than the budget says.
//! - `cl100k_base` and `o200k_base` count as the tokenizers of OpenAI's models do. The table of one
//!   is built at first use, which takes some tenths of a second and stays in memory (see
//!   [`Counter::warm`]). Models of others have other tokenizers, so their number is an estimate
//!   too.
//!
//! A long text is counted in pieces, because a tokenizer's cost can grow with the square of the
//! length; each seam may add a token.

use std::borrow::Cow;

use crate::config::TokenCounter;
use crate::turn::ConversationTurn;

#[cfg(feature = "tiktoken")]
mod bpe;
mod chars;
mod clamp;
#[cfg(test)]
mod tests;

pub use clamp::{HEAD_MARK, MARK};

/// A token counter. Copies share one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counter {
    /// An estimate by characters.
    Chars,
    /// A tokenizer.
    #[cfg(feature = "tiktoken")]
    #[doc(hidden)]
    Bpe(bpe::Table),
}

impl Counter {
    /// Makes a counter. Builds no table yet.
    ///
    /// # Errors
    /// A message, for a tokenizer that this build does not have.
    pub fn new(kind: TokenCounter) -> Result<Self, String> {
        match kind {
            TokenCounter::Chars => Ok(Self::Chars),
            #[cfg(feature = "tiktoken")]
            TokenCounter::Cl100kBase => Ok(Self::Bpe(bpe::Table::Cl100k)),
            #[cfg(feature = "tiktoken")]
            TokenCounter::O200kBase => Ok(Self::Bpe(bpe::Table::O200k)),
            #[cfg(not(feature = "tiktoken"))]
            TokenCounter::Cl100kBase | TokenCounter::O200kBase => {
                Err("conversation.tokens: this build has no tokenizers; there is chars".to_owned())
            }
        }
    }

    /// Builds the table, if it isn't built yet. Takes about 100 ms: call it on a blocking thread.
    pub fn warm(self) {
        match self {
            Self::Chars => {}
            #[cfg(feature = "tiktoken")]
            Self::Bpe(table) => {
                table.get();
            }
        }
    }

    /// Returns the tokens of a text; 0 for the empty one.
    #[must_use]
    pub fn count(self, text: &str) -> u64 {
        match self {
            Self::Chars => chars::count(text),
            #[cfg(feature = "tiktoken")]
            Self::Bpe(table) => table.count(text),
        }
    }

    /// Returns the tokens of a turn in a prompt: of its two texts, at least one each.
    ///
    /// Digest and artifacts are not in prompts.
    #[must_use]
    pub fn turn(self, turn: &ConversationTurn) -> u64 {
        self.count(&turn.user_message).max(1) + self.count(&turn.assistant_response).max(1)
    }

    /// Returns the tokens of a turn in a request to the summarizer: with the tools and what they
    /// showed.
    pub(crate) fn sent(self, turn: &ConversationTurn) -> u64 {
        let digest = turn.trajectory_digest.as_ref().map_or(0, |digest| {
            let tools = digest
                .tools_invoked
                .iter()
                .flatten()
                .map(|text| self.count(text))
                .sum::<u64>();
            tools + self.count(&digest.observations_summary)
        });
        self.turn(turn) + digest
    }

    /// Shortens a text to at most `max` tokens, and appends [`MARK`] if there is room.
    ///
    /// It cuts at the end of a sentence or word if possible. A text that fits is unchanged.
    #[must_use]
    pub fn clamp(self, text: &str, max: u64) -> Cow<'_, str> {
        clamp::clamp(self, text, max)
    }

    /// Shortens a text to at most `max` tokens by its start, with [`HEAD_MARK`] in its place if
    /// there is room.
    ///
    /// It cuts at the end of a sentence, or of a word if there is none. A text that fits is
    /// unchanged.
    #[must_use]
    pub fn tail(self, text: &str, max: u64) -> Cow<'_, str> {
        clamp::tail(self, text, max)
    }

    /// Returns the length of a prefix that has at most `max` tokens, close to the longest possible
    /// one.
    fn prefix(self, text: &str, max: u64) -> usize {
        match self {
            Self::Chars => chars::prefix(text, max),
            #[cfg(feature = "tiktoken")]
            Self::Bpe(table) => table.prefix(text, max),
        }
    }
}
