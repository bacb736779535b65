//! What every conversation memory must do, whatever its store and strategy: one suite, run on each of them.
//!
//! Each claim gets a fresh, empty store. A claim that does not hold panics with its name in the message.

mod basics;
mod budgets;
mod claims;
mod closing;
mod faults;
mod flights;
mod identities;
mod items;
mod outages;
mod restarts;
mod retention;
mod scribe;
mod snapshots;
pub(crate) mod subject;
mod switches;
pub(crate) mod tap;
pub(crate) mod walk;
mod writers;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use helmdeck_core::ManualClock;
use helmdeck_memory::Store;
use helmdeck_memory::conformance::Making;

pub use scribe::{Act, Call, Scribe, marks};
#[cfg(test)]
pub(crate) use subject::REASONS;
pub(crate) use subject::{Fixture, eventually};

use crate::config::Strategy;

/// Runs the whole suite under a strategy. `make` must give a new, empty store at every call, with the clock given.
///
/// # Panics
/// If a claim does not hold: at the end, with the names of all that do not.
pub async fn run(make: impl Fn(Arc<ManualClock>) -> Making, strategy: Strategy) {
    let mut broken = Vec::new();
    for (name, applies, claim) in claims::all() {
        if !applies.contains(&strategy) {
            continue;
        }
        let clock = Arc::new(ManualClock::default());
        let store: Arc<dyn Store> = make(Arc::clone(&clock)).await;
        tracing::debug!(name, "claim");
        if let Err(panic) = caught(claim(Fixture::new(strategy, Arc::clone(&store), clock))).await {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            broken.push(format!("{name}: {}", text.unwrap_or_default()));
            continue;
        }
        if let Err(error) = store.close().await {
            broken.push(format!("{name}: the store did not close: {error}"));
        }
    }
    assert!(broken.is_empty(), "under {strategy} these do not hold:\n{}", broken.join("\n"));
}

/// Runs a claim to its end or its panic.
async fn caught(mut claim: Pin<Box<dyn Future<Output = ()>>>) -> Result<(), Box<dyn Any + Send>> {
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| claim.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
