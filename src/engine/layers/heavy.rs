//! Runs long schema checks on blocking threads, outside the runtime's threads.
//!
//! The author of a schema decides how much work one document is. The schema's own budget
//! ([`helmdeck_core::Schema::validate`]) limits that work; here the caller's deadline and cancel end the wait, and only
//! a few such checks run at once.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use helmdeck_core::error::Violation;
use helmdeck_core::{Code, Error, Manifest, Result};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Limit of concurrent checks.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Arc::new(Semaphore::new(cores.div_ceil(2)))
});

/// Which document is checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Input,
    Output,
}

/// Time that the caller waits.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience {
    pub(super) deadline: Option<Instant>,
    pub(super) cancel: Option<CancellationToken>,
}

/// Checks a document on a blocking thread and returns it.
///
/// # Errors
/// `timeout` or `cancelled` if the caller waits no longer.
pub(super) async fn check(
    manifest: Arc<Manifest>,
    side: Side,
    value: Value,
    patience: Patience,
) -> Result<(Value, Result<(), Vec<Violation>>)> {
    let work = async move {
        // The semaphore is never closed.
        let place = Arc::clone(&PLACES).acquire_owned().await.ok();
        let checked = tokio::task::spawn_blocking(move || {
            let _place = place;
            let schema = match side {
                Side::Input => &manifest.input,
                Side::Output => &manifest.output,
            };
            let result = schema.validate(&value);
            (value, result)
        });
        checked.await.map_err(|error| Error::new(Code::Internal, "a check by a schema failed").with_source(error))
    };
    let cancelled = async {
        match &patience.cancel {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let late = async {
        match patience.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = cancelled => Err(Error::new(Code::Cancelled, "the call was cancelled")),
        () = late => Err(Error::new(Code::Timeout, "the check by the pack's schema did not end in time")),
    }
}
