//! The health of a conversation: four states, and the only moves between them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{ConversationError, Result};

/// How the summary of a conversation is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All is well.
    #[default]
    Healthy,
    /// The summarizer failed, and is asked again soon.
    Retry,
    /// The summarizer failed too often. Turns pile up unsummarised; none is lost.
    Degraded,
    /// What has piled up is being summarised.
    Recovering,
}

/// Why the health changed: fixed words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The summarizer failed.
    SummarizerFailed,
    /// The summarizer succeeded after it had failed.
    SummarizerSucceeded,
    /// The summarizer failed too often in a row.
    RetriesExhausted,
    /// What has piled up is tried again.
    RecoveryLoopAttempt,
    /// That failed.
    RecoveryBatchFailed,
    /// That succeeded, and more is left.
    RecoveryBatchDrained,
    /// That succeeded, and nothing is left.
    RecoveryLoopDrained,
    /// The conversation was flushed.
    Flushed,
    /// The conversation was restored from a snapshot.
    Restored,
}

impl Health {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Healthy, Self::Retry, Self::Degraded, Self::Recovering];

    /// Returns the name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Retry => "retry",
            Self::Degraded => "degraded",
            Self::Recovering => "recovering",
        }
    }

    /// Says whether a move is legal for a reason.
    ///
    /// # Errors
    /// `InvalidHealthTransition`: whoever asks has a bug.
    pub const fn change(self, new: Self, reason: Reason) -> Result<Self> {
        use Reason as R;
        match (self, new, reason) {
            (Self::Healthy, Self::Retry, R::SummarizerFailed)
            | (Self::Retry, Self::Healthy, R::SummarizerSucceeded)
            | (Self::Retry, Self::Degraded, R::RetriesExhausted)
            | (Self::Degraded, Self::Recovering, R::RecoveryLoopAttempt)
            | (Self::Recovering, Self::Healthy, R::RecoveryLoopDrained)
            | (Self::Recovering, Self::Degraded, R::RecoveryBatchFailed | R::RecoveryBatchDrained | R::RetriesExhausted)
            // Staying is legal, for whatever happened meanwhile.
            | (Self::Healthy, Self::Healthy, R::SummarizerSucceeded)
            | (Self::Retry, Self::Retry, R::SummarizerFailed)
            | (Self::Degraded, Self::Degraded, R::RetriesExhausted)
            | (Self::Recovering, Self::Recovering, R::RecoveryLoopAttempt)
            // A clean start is always possible.
            | (_, Self::Healthy, R::Flushed | R::Restored) => Ok(new),
            _ => Err(ConversationError::InvalidHealthTransition { prior: self, new }),
        }
    }
}

impl Reason {
    /// Returns the word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SummarizerFailed => "summarizer_failed",
            Self::SummarizerSucceeded => "summarizer_succeeded",
            Self::RetriesExhausted => "retries_exhausted",
            Self::RecoveryLoopAttempt => "recovery_loop_attempt",
            Self::RecoveryBatchFailed => "recovery_batch_failed",
            Self::RecoveryBatchDrained => "recovery_batch_drained",
            Self::RecoveryLoopDrained => "recovery_loop_drained",
            Self::Flushed => "flushed",
            Self::Restored => "restored",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
