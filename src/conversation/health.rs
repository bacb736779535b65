//! Health of a conversation: four states and the transitions between them.

use serde::{Deserialize, Serialize};

/// State of summarising a conversation.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Health {
    /// No problem is known.
    #[default]
    Healthy,
    /// The summarizer failed and is retried soon.
    Retry,
    /// The summarizer failed too often. Turns wait unsummarised; none is lost.
    Degraded,
    /// The waiting turns are being summarised.
    Recovering,
}

/// Reason of a change of health, in fixed words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// The summarizer failed.
    SummarizerFailed,
    /// The summarizer succeeded after a failure.
    SummarizerSucceeded,
    /// The summarizer failed too often in a row.
    RetriesExhausted,
    /// The waiting turns are tried again.
    RecoveryLoopAttempt,
    /// That attempt failed.
    RecoveryBatchFailed,
    /// That attempt succeeded, and more turns wait.
    RecoveryBatchDrained,
    /// That attempt succeeded, and no turn waits.
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
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the table allows a transition for a reason.
    #[must_use]
    pub const fn allows(self, new: Self, reason: Reason) -> bool {
        use Reason as R;
        matches!(
            (self, new, reason),
            (Self::Healthy, Self::Retry, R::SummarizerFailed)
            | (Self::Retry, Self::Healthy, R::SummarizerSucceeded)
            | (Self::Retry, Self::Degraded, R::RetriesExhausted)
            | (Self::Degraded, Self::Recovering, R::RecoveryLoopAttempt)
            | (Self::Recovering, Self::Healthy, R::RecoveryLoopDrained)
            | (Self::Recovering, Self::Degraded, R::RecoveryBatchFailed | R::RecoveryBatchDrained | R::RetriesExhausted)
            // Staying is allowed.
            | (Self::Healthy, Self::Healthy, R::SummarizerSucceeded)
            | (Self::Retry, Self::Retry, R::SummarizerFailed)
            | (Self::Degraded, Self::Degraded, R::RetriesExhausted)
            | (Self::Recovering, Self::Recovering, R::RecoveryLoopAttempt)
            // A clean start is always possible.
            | (_, Self::Healthy, R::Flushed | R::Restored)
        )
    }
}

impl Reason {
    /// Returns the word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
