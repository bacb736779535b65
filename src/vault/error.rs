//! Errors of the vault. No message holds a secret or a key.

use helmdeck_memory::StoreError;

/// A result whose error is [`VaultError`].
pub type Result<T, E = VaultError> = std::result::Result<T, E>;

/// Errors of the vault.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// There is no credential of this name.
    #[error("there is no credential \"{0}\"")]
    Missing(String),
    /// A name, type, host or grant is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The secret is invalid for its type.
    #[error("the secret is refused: {0}")]
    Refused(&'static str),
    /// The vault belongs to another key.
    #[error("the vault is sealed with key {vault}; the key given is {given}")]
    WrongKey {
        /// The id of the key that the vault belongs to.
        vault: String,
        /// The ids of the keys given, current first.
        given: String,
    },
    /// The row exists but does not open.
    #[error("credential \"{name}\" does not open: {reason}")]
    Unreadable {
        /// The credential.
        name: String,
        /// Why, in general terms.
        reason: String,
    },
    /// The database cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl VaultError {
    /// Returns whether the database cannot be reached now, and may be later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_temporary())
    }
}
