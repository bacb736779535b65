//! Errors of a store.

use std::sync::Arc;

/// A result whose error is [`StoreError`].
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Errors of a store. No message holds a key, a value or a secret.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// `expect_version` did not match; nothing was written.
    #[error("the entry is at version {found}, not {expected}")]
    VersionMismatch {
        /// The version that the writer expected (0 = absent).
        expected: u64,
        /// The stored version (0 = absent).
        found: u64,
    },
    /// The entry that is there is as new as the one to be restored, or newer; nothing was written.
    #[error("the entry that is there is not older")]
    NotNewer,
    /// A key, value, tag or attribute is over its limit; nothing was written.
    #[error("the {what} has a size of {size}, the limit is {limit}")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// Its size: bytes of a text, entries of a list.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// An argument that no store accepts, for example an empty key or a cursor that the store did
    /// not make.
    #[error("not acceptable: {0}")]
    Invalid(&'static str),
    /// The namespace is full, and its kind does not make room; nothing was written.
    #[error("the namespace is full: the limit is {limit} {what}")]
    QuotaExceeded {
        /// `rows` or `bytes`.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The row exists but does not open: another key, moved, altered, or never sealed.
    #[error("the row does not open: {reason}")]
    Unreadable {
        /// Why, in general terms.
        reason: &'static str,
    },
    /// The store was written with another key.
    #[error("this store was written with key {store}; the key given is {given}")]
    WrongKey {
        /// The id of the key that wrote the store.
        store: String,
        /// The ids of the keys given, current first.
        given: String,
    },
    /// The memory key has the wrong form.
    #[error("{0}")]
    MalformedKey(String),
    /// The URL names an unknown driver, or an impossible file.
    #[error("{0}")]
    BadUrl(String),
    /// The store holds data that it cannot have written: damaged, or of a newer version.
    #[error("the store is damaged or of another version: {0}")]
    Corrupt(String),
    /// The store cannot be reached or is busy; the same call may succeed later.
    #[error("the store is not available: {message}")]
    Unavailable {
        /// The driver's message.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Makes an [`StoreError::Unavailable`] of a driver's error.
    pub fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Unavailable {
            message: error.to_string(),
            source: Some(Arc::new(error)),
        }
    }

    /// Returns the trouble of the store in one word, for programs.
    ///
    /// One of `locked`, `read_only`, `full`, `damaged`, `wrong_key`, or `unavailable` for anything
    /// else.
    #[must_use]
    pub fn trouble(&self) -> &'static str {
        match self {
            Self::Corrupt(_) => "damaged",
            Self::WrongKey { .. } => "wrong_key",
            Self::Unavailable {
                source: Some(source),
                ..
            } => trouble_of(source.as_ref()),
            _ => UNAVAILABLE,
        }
    }

    /// Returns whether the same call may succeed later without an operator.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// The word for all other trouble.
const UNAVAILABLE: &str = "unavailable";

fn trouble_of(source: &(dyn std::error::Error + Send + Sync + 'static)) -> &'static str {
    use std::io::ErrorKind;

    use rusqlite::ErrorCode;

    if let Some(error) = source.downcast_ref::<std::io::Error>() {
        return match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "read_only",
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "full",
            _ => UNAVAILABLE,
        };
    }
    #[cfg(feature = "postgres")]
    if let Some(error) = source.downcast_ref::<tokio_postgres::Error>() {
        use tokio_postgres::error::SqlState;
        return match error.code() {
            Some(&SqlState::DISK_FULL) => "full",
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => "read_only",
            _ => UNAVAILABLE,
        };
    }
    match source
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code)
    {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "locked",
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => "read_only",
        Some(ErrorCode::DiskFull) => "full",
        _ => UNAVAILABLE,
    }
}
