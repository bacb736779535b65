//! Conformance suite of stores: it runs on every driver and seal.
//!
//! Each test case gets a new, empty store. A case that fails panics with its name in the message.

mod cases;
mod clocks;
mod deletes;
mod entries;
pub(crate) mod eviction;
mod hostile;
mod limits;
mod lists;
mod locks;
mod restores;
mod room;
pub mod rotation;
mod walks;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use helmdeck_core::ManualClock;

use crate::config::Config;
use crate::store::Store;

/// A future that makes a store.
pub type Making = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;

/// A store under test and the clock that it reads.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
}

/// Runs the whole suite.
///
/// Each call of `make` must return a new, empty store with the given clock and configuration.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use helmdeck_memory::drivers::memory::Memory;
/// use helmdeck_memory::{Store, DriverStore, conformance};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// conformance::run(|config, clock| {
///     Box::pin(async move { Arc::new(DriverStore::plain(Memory::new(), &config, clock)) as Arc<dyn Store> })
/// })
/// .await;
/// # });
/// ```
pub async fn run(make: impl Fn(Config, Arc<ManualClock>) -> Making) {
    run_where(|_| true, make).await;
}

/// Runs the test cases of some modules of the suite.
#[cfg(test)]
pub(crate) async fn run_of(modules: &[&str], make: impl Fn(Config, Arc<ManualClock>) -> Making) {
    run_where(|module| modules.contains(&module), make).await;
}

async fn run_where(
    wanted: impl Fn(&str) -> bool,
    make: impl Fn(Config, Arc<ManualClock>) -> Making,
) {
    for (module, name, config, case) in cases::all() {
        if !wanted(module) {
            continue;
        }
        let clock = Arc::new(ManualClock::default());
        let store = make(config, Arc::clone(&clock)).await;
        tracing::debug!(name, "test case");
        case(Fixture {
            store: Arc::clone(&store),
            clock,
        })
        .await;
        let closed = store.close().await;
        assert!(
            closed.is_ok(),
            "{name}: the store did not close: {closed:?}"
        );
    }
}
