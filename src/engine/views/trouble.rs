//! Public errors of the store: they say what the caller can do.
//!
//! They never contain the driver's message.

use std::time::Duration;

use helmdeck_core::{Code, Error};
use helmdeck_memory::StoreError;

/// Retry time for a store that is not available.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Word for a store whose disk is full.
pub(super) const FULL: &str = "full";

/// Converts an error of the store into a public one.
///
/// It is `overloaded` (with a wait) if the store is not available, `resource_exhausted` if its disk
/// is full, `too_large` and `resource_exhausted` over a limit, `invalid_input` for what no store
/// accepts, `conflict` for another version, else `internal`.
#[must_use]
pub fn store_error(error: StoreError) -> Error {
    match &error {
        StoreError::TooLarge { .. } => Error::new(Code::TooLarge, error.to_string()),
        StoreError::Invalid(_) => Error::new(Code::InvalidInput, error.to_string()),
        StoreError::QuotaExceeded { .. } => Error::new(Code::ResourceExhausted, error.to_string()),
        StoreError::VersionMismatch { .. } | StoreError::NotNewer => {
            Error::new(Code::Conflict, error.to_string())
        }
        StoreError::Unavailable { .. } if error.trouble() == FULL => Error::new(
            Code::ResourceExhausted,
            "the disk of the memory store is full: nothing can be written until there is room",
        )
        .for_operator()
        .with_source(error),
        StoreError::Unavailable { .. } => {
            Error::new(Code::Overloaded, "the memory store is not available")
                .with_retry_after(RETRY_AFTER)
                .with_source(error)
        }
        StoreError::Closed => {
            Error::new(Code::Overloaded, "the memory store is closed").with_source(error)
        }
        _ => Error::new(Code::Internal, "the memory store failed").with_source(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_error_hides_driver_text_and_has_retry_time() {
        let error = store_error(StoreError::Unavailable {
            message: "canary at /home/x/memory.db".to_owned(),
            source: None,
        });
        assert_eq!(
            (error.code(), error.retry_after()),
            (Code::Overloaded, Some(RETRY_AFTER))
        );
        assert!(
            !error.problem().to_string().contains("canary") && error.cause().contains("canary")
        );
        let error = store_error(StoreError::Corrupt("canary".to_owned()));
        assert!(error.code() == Code::Internal && !error.to_string().contains("canary"));
    }

    #[test]
    fn limits_have_codes_of_their_own() {
        let code = |error| store_error(error).code();
        assert_eq!(
            code(StoreError::TooLarge {
                what: "key",
                size: 2,
                limit: 1
            }),
            Code::TooLarge
        );
        assert_eq!(
            code(StoreError::QuotaExceeded {
                what: "rows",
                limit: 1
            }),
            Code::ResourceExhausted
        );
        assert_eq!(
            code(StoreError::Invalid("the key is empty")),
            Code::InvalidInput
        );
        assert_eq!(
            code(StoreError::VersionMismatch {
                expected: 1,
                found: 2
            }),
            Code::Conflict
        );
        assert_eq!(code(StoreError::Closed), Code::Overloaded);
    }
}
