//! Summarizers: merge an older summary and newer turns into one summary.
//!
//! [`ChatSummarizer`] asks a model; embedding programs may implement [`Summarizer`] themselves.

mod chat;
mod check;
mod prompt;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::identity::Identity;
use crate::turn::ConversationTurn;

pub use chat::{ChatSummarizer, client_config};

/// A request for a summary.
#[derive(Clone, Default)]
pub struct SummarizeRequest {
    /// The previous summary; may be empty.
    pub previous_summary: String,
    /// The turns after it, oldest first; at least one.
    pub turns: Vec<Arc<ConversationTurn>>,
    /// The goal of the conversation, if known.
    pub goal: Option<String>,
    /// Maximum tokens of the new summary.
    pub max_tokens: u64,
}

/// A summary.
#[derive(Clone, PartialEq, Eq)]
pub struct SummarizeResponse {
    /// Summary of the previous summary and the turns. It replaces the previous one.
    pub summary: String,
}

/// Why there is no summary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .reason.as_str())]
pub struct SummarizeError {
    /// Why, in one fixed word.
    pub reason: Failure,
    /// When to ask again, if the endpoint says.
    pub retry_after: Option<Duration>,
    /// Details for the log: never text of a turn, never a secret.
    pub detail: String,
}

/// Reason of a failure, in fixed words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Failure {
    /// The endpoint is unreachable or failed.
    Unavailable,
    /// It did not answer in time.
    Timeout,
    /// It limits the rate of requests.
    RateLimited,
    /// It refused the credential, or the credential is missing.
    Credential,
    /// It refused the request or has no such model.
    Refused,
    /// The turns are too long for the model.
    TooLong,
    /// The summary was cut off.
    Truncated,
    /// The summary is longer than its limit.
    OverLimit,
    /// The answer is empty or not a model's.
    Garbage,
    /// The model repeated itself.
    Looping,
}

impl Failure {
    /// Returns the word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether a smaller request may help.
    #[must_use]
    pub const fn wants_less(self) -> bool {
        // One of many turns may be the cause.
        matches!(
            self,
            Self::TooLong
                | Self::Truncated
                | Self::Looping
                | Self::Timeout
                | Self::Garbage
                | Self::Refused
        )
    }
}

/// A summarizer, shared by all conversations. Dropping the future cancels the request.
#[async_trait]
pub trait Summarizer: Send + Sync + 'static {
    /// Summarises turns.
    ///
    /// # Errors
    /// The reason. Anything but a summary must be an error, also an error text that a model
    /// returned.
    async fn summarize(
        &self,
        identity: &Identity,
        request: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError>;
}

helmdeck_core::redacted_debug!(SummarizeRequest, this => previous_bytes = this.previous_summary.len(),
    turns = this.turns.len(), max_tokens = this.max_tokens);
helmdeck_core::redacted_debug!(SummarizeResponse, this => bytes = this.summary.len());
