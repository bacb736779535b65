//! Conformance suite of conversation memories, for every store and strategy.
//!
//! Each test case gets a new, empty store, and panics if it fails.

mod basics;
mod budgets;
mod cases;
mod closing;
mod faults;
pub(crate) mod faulty_store;
pub(crate) mod fixture;
mod goals;
mod identities;
mod late_summaries;
mod outages;
pub(crate) mod random_operations;
mod restarts;
mod retention;
mod scripted_summarizer;
mod snapshots;
mod switches;
mod turns;
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

#[cfg(test)]
pub(crate) use fixture::REASONS;
pub(crate) use fixture::{Fixture, eventually};
pub use scripted_summarizer::{Action, Call, ScriptedSummarizer, marks};

use crate::config::Strategy;

/// The kind of store that the suite runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreUnderTest {
    /// The driver in memory: here the cases run too that no store makes a difference to.
    InMemory,
    /// A file or a server.
    Real,
}

/// Runs the suite under a strategy.
///
/// `make` returns a new, empty store of this kind at every call, with the given clock.
///
/// # Panics
/// If a test case fails: at the end, with the names of all that do.
pub async fn run(
    make: impl Fn(Arc<ManualClock>) -> Making,
    kind: StoreUnderTest,
    strategy: Strategy,
) {
    let mut broken = Vec::new();
    for (name, strategies, on, test_case) in cases::all() {
        if !strategies.contains(&strategy) || !on.runs(kind) {
            continue;
        }
        let clock = Arc::new(ManualClock::default());
        let store: Arc<dyn Store> = make(Arc::clone(&clock)).await;
        tracing::debug!(name, "test case");
        if let Err(panic) =
            caught(test_case(Fixture::new(strategy, Arc::clone(&store), clock))).await
        {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(panic.downcast_ref::<&str>().copied());
            broken.push(format!("{name}: {}", text.unwrap_or_default()));
            continue;
        }
        if let Err(error) = store.close().await {
            broken.push(format!("{name}: the store did not close: {error}"));
        }
    }
    assert!(
        broken.is_empty(),
        "under {strategy} these do not hold:\n{}",
        broken.join("\n")
    );
}

/// Runs a test case to its end or panic.
async fn caught(
    mut test_case: Pin<Box<dyn Future<Output = ()>>>,
) -> Result<(), Box<dyn Any + Send>> {
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| test_case.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}
