//! Errors of the conversation memory.

use helmdeck_core::{Code, Error};
use helmdeck_memory::StoreError;

use crate::health::Health;

/// A result whose error is [`ConversationError`].
pub type Result<T, E = ConversationError> = std::result::Result<T, E>;

/// Errors of the conversation memory. No message contains text of a turn.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConversationError {
    /// Turn or conversation not found.
    #[error("memory: record not found")]
    NotFound,
    /// Tenant, user or session is empty.
    #[error(
        "memory: identity triple incomplete: {reason}; name the conversation with the argument `session`"
    )]
    IdentityRequired {
        /// The missing parts, in fixed words.
        reason: String,
    },
    /// The memory was closed.
    #[error("memory: store is closed")]
    Closed,
    /// The snapshot is invalid, or of another strategy.
    #[error("memory: invalid snapshot for this strategy: {0}")]
    InvalidSnapshot(String),
    /// The table doesn't allow this change of health: a bug.
    #[error("memory: invalid health transition: {prior} to {new}")]
    InvalidHealthTransition {
        /// From.
        prior: Health,
        /// To.
        new: Health,
    },
    /// `rolling_summary` was opened without a summarizer.
    #[error(
        "memory: rolling_summary needs a summarizer: set conversation.summarizer.endpoint and conversation.summarizer.model"
    )]
    SummarizerRequired,
    /// The turn exceeds the whole budget, and `on_oversize` is `refuse`. Nothing was written.
    #[error("memory: the turn takes {tokens} tokens, the budget of a conversation is {budget}")]
    Oversize {
        /// The turn's tokens.
        tokens: u64,
        /// The budget.
        budget: u64,
    },
    /// A turn or a snapshot exceeds a limit. Nothing was written.
    #[error("memory: the {what} has {size} {unit}, the limit is {limit}")]
    TooLarge {
        /// The kind of value.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
        /// The unit: `bytes` or `turns`.
        unit: &'static str,
    },
    /// Another turn was added under the same `once` less than a day ago. Nothing was written.
    #[error("memory: another turn was added under this once")]
    OnceReused,
    /// An argument is invalid.
    #[error("memory: {0}")]
    Invalid(String),
    /// Other writers kept changing the conversation. Nothing was written; try again later.
    #[error("memory: others write to this conversation at the same time")]
    Contended,
    /// The stored conversation is unreadable. Flush or restore it to repair it.
    #[error("memory: the conversation is damaged: {0}")]
    Corrupt(String),
    /// The store failed.
    #[error("memory: {0}")]
    Store(#[from] StoreError),
}

impl ConversationError {
    /// Returns whether the same call may succeed later.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Contended => true,
            Self::Store(error) => error.is_temporary(),
            _ => false,
        }
    }
}

impl From<ConversationError> for Error {
    fn from(error: ConversationError) -> Self {
        let code = match &error {
            ConversationError::NotFound => Code::NotFound,
            ConversationError::IdentityRequired { .. }
            | ConversationError::InvalidSnapshot(_)
            | ConversationError::Invalid(_) => Code::InvalidInput,
            ConversationError::Oversize { .. } | ConversationError::TooLarge { .. } => {
                Code::TooLarge
            }
            ConversationError::OnceReused => Code::Conflict,
            ConversationError::Contended | ConversationError::Closed => Code::Overloaded,
            ConversationError::InvalidHealthTransition { .. }
            | ConversationError::Corrupt(_)
            | ConversationError::SummarizerRequired => Code::Internal,
            ConversationError::Store(error) => match error {
                StoreError::TooLarge { .. } => Code::TooLarge,
                StoreError::QuotaExceeded { .. } => Code::ResourceExhausted,
                StoreError::Invalid(_) => Code::InvalidInput,
                StoreError::Unavailable { .. } | StoreError::Closed => Code::Overloaded,
                _ => Code::Internal,
            },
        };
        // Driver messages stay in the log: they may name a host or a file.
        let message = match &error {
            ConversationError::Store(error) if error.is_temporary() => {
                "memory: the store is not available".to_owned()
            }
            ConversationError::Store(_) if code == Code::Internal => {
                "memory: the store failed".to_owned()
            }
            error => error.to_string(),
        };
        Self::new(code, message).with_source(error)
    }
}
