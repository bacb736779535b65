//! What makes one summary out of an older one and the turns after it.
//!
//! [`ChatSummarizer`] asks a model; a program of its own can give the memory any other [`Summarizer`].

mod chat;
mod check;
mod prompt;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::identity::Identity;
use crate::turn::ConversationTurn;

pub use chat::{ChatSummarizer, client_config};

/// What is to be summarised.
#[derive(Clone, Default)]
pub struct SummarizeRequest {
    /// The summary so far; empty if there is none.
    pub previous_summary: String,
    /// The turns after it, oldest first; at least one.
    pub turns: Vec<Arc<ConversationTurn>>,
    /// What the user asked for at first, if that is known.
    pub opening: Option<String>,
    /// The most tokens that the new summary may take.
    pub max_tokens: u64,
}

/// A summary.
#[derive(Clone, PartialEq, Eq)]
pub struct SummarizeResponse {
    /// The summary of everything: what was summarised before, and the turns. It takes the place of the older one.
    pub summary: String,
}

/// Why there is no summary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .reason.as_str())]
pub struct SummarizeError {
    /// Why, in one fixed word.
    pub reason: Failure,
    /// When to come back, if the endpoint says.
    pub retry_after: Option<Duration>,
    /// More about it, for the log: never a turn's text, never a secret.
    pub detail: String,
}

/// Why there is no summary: fixed words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The endpoint cannot be reached, or failed.
    Unavailable,
    /// It took too long.
    Timeout,
    /// It wants fewer requests.
    RateLimited,
    /// It refused the credential, or there is none.
    Credential,
    /// It refused the request, or knows no such model.
    Refused,
    /// The turns are too long for the model.
    TooLong,
    /// The summary was cut off.
    Truncated,
    /// What came was no summary: nothing at all, or no answer of a model.
    Garbage,
    /// The model said the same over and over.
    Looping,
}

impl Failure {
    /// Returns the word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Credential => "credential",
            Self::Refused => "refused",
            Self::TooLong => "too_long",
            Self::Truncated => "truncated",
            Self::Garbage => "garbage",
            Self::Looping => "looping",
        }
    }

    /// Says whether asking with fewer turns may help.
    #[must_use]
    pub const fn wants_less(self) -> bool {
        // What a model refuses, or has no sensible answer to, may be one turn among many.
        matches!(self, Self::TooLong | Self::Truncated | Self::Looping | Self::Timeout | Self::Garbage | Self::Refused)
    }
}

/// Makes summaries. One is shared by all conversations; dropping the future cancels the request.
#[async_trait]
pub trait Summarizer: Send + Sync + 'static {
    /// Folds turns into a summary.
    ///
    /// # Errors
    /// Why there is none. Whatever is answered instead of a summary, an error text too, must be an error here.
    async fn summarize(
        &self,
        identity: &Identity,
        request: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError>;
}

// Both hold what people said: no log shows it by accident.
impl fmt::Debug for SummarizeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SummarizeRequest")
            .field("previous_bytes", &self.previous_summary.len())
            .field("turns", &self.turns.len())
            .field("max_tokens", &self.max_tokens)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SummarizeResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SummarizeResponse").field("bytes", &self.summary.len()).finish()
    }
}
