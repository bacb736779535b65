//! What can go wrong with a conversation memory.

use helmdeck_core::{Code, Error};
use helmdeck_memory::StoreError;

use crate::health::Health;

/// A result whose error is [`ConversationError`].
pub type Result<T, E = ConversationError> = std::result::Result<T, E>;

/// What can go wrong with a conversation memory. No message holds a turn's text.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConversationError {
    /// There is no such item, or no such conversation.
    #[error("memory: record not found")]
    NotFound,
    /// Tenant, user or session is empty.
    #[error("memory: identity triple incomplete: {reason}; name the conversation with the argument `session`")]
    IdentityRequired {
        /// Which parts, in fixed words.
        reason: String,
    },
    /// The memory was closed.
    #[error("memory: store is closed")]
    Closed,
    /// A snapshot of another strategy, or none at all.
    #[error("memory: invalid snapshot for this strategy: {0}")]
    InvalidSnapshot(String),
    /// A change of health that the table does not know: a bug of whoever asked for it.
    #[error("memory: invalid health transition: {prior} to {new}")]
    InvalidHealthTransition {
        /// From.
        prior: Health,
        /// To.
        new: Health,
    },
    /// There is nothing to summarise with; `rolling_summary` does not open so.
    #[error(
        "memory: rolling_summary needs a summarizer: set conversation.summarizer.endpoint and conversation.summarizer.model"
    )]
    SummarizerRequired,
    /// A turn alone takes more than the whole budget, and the operator refuses such turns. Nothing was written.
    #[error("memory: the turn takes {tokens} tokens, the budget of a conversation is {budget}")]
    Oversize {
        /// The turn's tokens.
        tokens: u64,
        /// The budget.
        budget: u64,
    },
    /// A turn or a snapshot is over a limit. Nothing was written.
    #[error("memory: the {what} has {size} {unit}, the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
        /// Of what: `bytes`, `turns`.
        unit: &'static str,
    },
    /// Another turn was added under the same `once` less than a day ago. Nothing was written.
    #[error("memory: another turn was added under this once")]
    OnceReused,
    /// An argument that cannot be.
    #[error("memory: {0}")]
    Invalid(String),
    /// Others wrote to the same conversation all the time. Nothing was written; the same call may succeed later.
    #[error("memory: others write to this conversation at the same time")]
    Contended,
    /// What is stored of the conversation does not open or makes no sense. Flushing or restoring it makes it usable again.
    #[error("memory: the conversation is damaged: {0}")]
    Corrupt(String),
    /// The store failed.
    #[error("memory: {0}")]
    Store(#[from] StoreError),
}

impl ConversationError {
    /// Says whether the same call may succeed later without anybody doing anything.
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
            ConversationError::Oversize { .. } | ConversationError::TooLarge { .. } => Code::TooLarge,
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
        // What a driver says stays in the log: it may name a host or a file.
        let message = match &error {
            ConversationError::Store(error) if error.is_temporary() => "memory: the store is not available".to_owned(),
            ConversationError::Store(_) if code == Code::Internal => "memory: the store failed".to_owned(),
            error => error.to_string(),
        };
        Self::new(code, message).with_source(error)
    }
}
