//! Maps SQLite errors to store errors: damaged, or temporarily unavailable.
//!
//! Messages come from SQLite and hold no values.

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_CORRUPTFS, SQLITE_IOERR_DATA, SQLITE_IOERR_SHORT_READ};

use crate::error::StoreError;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        // The file is shorter than it says, its checksums are wrong, or the file system is damaged.
        let damaged = [
            SQLITE_IOERR_SHORT_READ,
            SQLITE_IOERR_DATA,
            SQLITE_IOERR_CORRUPTFS,
        ];
        if error
            .sqlite_error()
            .is_some_and(|error| damaged.contains(&error.extended_code))
        {
            return Self::Corrupt(error.to_string());
        }
        match error.sqlite_error_code() {
            // A missing table, a wrong type or a broken rule: the file is not what this driver
            // writes.
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::Unknown,
            )
            | None => Self::Corrupt(error.to_string()),
            Some(_) => Self::unavailable(error),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        Self::unavailable(error)
    }
}

/// Returns whether to discard the connection after this error, because a new one may work.
pub(super) fn spoils_connection(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt(_)) || (error.is_temporary() && !is_environmental(error))
}

/// Returns whether the error comes from a full disk or another's lock.
///
/// Every batch of a group would get it.
pub(super) fn is_environmental(error: &StoreError) -> bool {
    let StoreError::Unavailable {
        source: Some(source),
        ..
    } = error
    else {
        return false;
    };
    let code = source
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code);
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
    )
}
