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
mod subject;
mod switches;
mod tap;
pub(crate) mod walk;
mod writers;

use std::sync::Arc;

use helmdeck_memory::Store;
use helmdeck_memory::conformance::{HandClock, Making};

pub use scribe::{Act, Call, Scribe, marks};
pub(crate) use subject::{Subject, eventually};

use crate::config::Strategy;

/// Runs the whole suite under a strategy. `make` must give a new, empty store at every call, with the clock given.
///
/// # Panics
/// If a claim does not hold.
pub async fn run(make: impl Fn(Arc<HandClock>) -> Making, strategy: Strategy) {
    for (name, applies, claim) in claims::all() {
        if !applies.contains(&strategy) {
            continue;
        }
        let clock = Arc::new(HandClock::default());
        let store: Arc<dyn Store> = make(Arc::clone(&clock)).await;
        tracing::debug!(name, "claim");
        // A claim runs as a task of its own, so that its name is told if it panics.
        let done = tokio::spawn(claim(Subject::new(strategy, Arc::clone(&store), clock))).await;
        assert!(done.is_ok(), "{name} does not hold under {strategy}");
        let closed = store.close().await;
        assert!(closed.is_ok(), "{name}: the store did not close: {closed:?}");
    }
}
