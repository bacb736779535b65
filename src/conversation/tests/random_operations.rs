//! Random walks that shrink to the shortest one that fails.

use std::sync::Arc;

use helmdeck_core::ManualClock;
use helmdeck_memory::drivers::memory::Memory;
use helmdeck_memory::{Config, DriverStore, Store};
use proptest::test_runner::{Config as Cases, TestRunner};

use crate::config::Strategy;
use crate::conformance::{Fixture, random_operations};

fn walks(strategy: Strategy, processes: usize, cases: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(Cases {
        cases,
        failure_persistence: None,
        ..Cases::default()
    });
    let steps = proptest::collection::vec(0u64..32 * 48, 1..90);
    let walked = runner.run(&steps, |steps| {
        let clock = Arc::new(ManualClock::default());
        let store: Arc<dyn Store> = Arc::new(DriverStore::plain(
            Memory::new(),
            &Config::default(),
            clock.clone(),
        ));
        let fixture = Fixture::new(strategy, store, clock);
        runtime.block_on(random_operations::walk(&fixture, processes, &steps));
        Ok(())
    });
    if let Err(error) = walked {
        panic!("{error}");
    }
}

#[test]
fn any_walk_under_rolling_summary_loses_nothing() {
    walks(Strategy::RollingSummary, 1, 120);
}

#[test]
fn two_processes_with_rolling_summary_lose_nothing() {
    walks(Strategy::RollingSummary, 2, 60);
}

#[test]
fn any_walk_under_truncation_loses_nothing() {
    walks(Strategy::Truncation, 2, 60);
}

#[test]
fn any_walk_under_none_keeps_nothing() {
    walks(Strategy::None, 1, 30);
}
