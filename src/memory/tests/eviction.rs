//! Replay of calls against real stores: how often they hit, and what the hits save, beside LRU.

use std::collections::BTreeMap;
use std::sync::Arc;

use helmdeck_core::ManualClock;

use super::{KEY_A, ring};
use crate::conformance::Fixture;
use crate::conformance::eviction::{Gain, Lru, Zipf, call};
use crate::drivers::memory::Memory;
use crate::drivers::sqlite::Sqlite;
use crate::{Config, DriverStore, Kind, KindLimits, Limits, Store};

/// Different calls, calls, and answers that fit.
const KEYS: usize = 4_000;
const CALLS: usize = 25_000;
const ROWS: usize = 400;

fn config() -> Config {
    let kinds = BTreeMap::from([(
        Kind::Cache,
        KindLimits {
            rows: Some(ROWS as u64),
            ..KindLimits::default()
        },
    )]);
    Config {
        limits: Limits {
            kinds,
            ..Limits::default()
        },
        ..Config::default()
    }
}

/// Replays calls; returns what the store got out of them, and what LRU does, as parts of all calls
/// and of all costs.
async fn replay(
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    exponent: f64,
    dear_us: u64,
) -> [(f64, f64); 2] {
    let fixture = Fixture { store, clock };
    let (mut zipf, mut lru, mut gain) = (
        Zipf::new(exponent, KEYS, 1),
        Lru::new(ROWS),
        Gain::default(),
    );
    let mut all_us = 0;
    for _ in 0..CALLS {
        let key = zipf.next_key();
        // Every other answer, in a mixed order of popularity.
        let cost_us = if (key * 2_654_435_761) % 7 < 3 {
            dear_us
        } else {
            1_000
        };
        all_us += cost_us;
        lru.call(key, cost_us);
        call(&fixture, &mut gain, key, cost_us).await;
    }
    assert_eq!(fixture.store.stats().await.unwrap().rows, ROWS as u64);
    [gain, lru.gain].map(|gain| {
        (
            gain.hits as f64 / CALLS as f64,
            gain.saved_us as f64 / all_us as f64,
        )
    })
}

async fn in_memory(exponent: f64, dear_us: u64) -> [(f64, f64); 2] {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(DriverStore::plain(
        Memory::new(),
        &config(),
        Arc::clone(&clock) as _,
    ));
    replay(store, clock, exponent, dear_us).await
}

#[tokio::test]
async fn hits_are_at_least_those_of_lru() {
    for exponent in [0.7, 0.8, 0.9, 1.0, 1.1] {
        let [(hits, _), (of_lru, _)] = in_memory(exponent, 1_000).await;
        println!("Zipf {exponent}: {hits:.4} hits, LRU {of_lru:.4}");
        assert!(hits > of_lru, "Zipf {exponent}: {hits} hits, LRU {of_lru}");
    }
}

#[tokio::test]
async fn hits_save_more_than_lru_where_costs_differ() {
    for exponent in [0.7, 0.8, 0.9, 1.0, 1.1] {
        let [(hits, saved), (of_lru, saved_by_lru)] = in_memory(exponent, 100_000).await;
        println!(
            "Zipf {exponent}: {hits:.4} hits save {saved:.4}, LRU {of_lru:.4} save {saved_by_lru:.4}"
        );
        assert!(
            saved > saved_by_lru + 0.03,
            "Zipf {exponent}: {saved} saved, LRU {saved_by_lru}"
        );
        assert!(
            hits > of_lru - 0.01,
            "Zipf {exponent}: {hits} hits, LRU {of_lru}"
        );
    }
}

/// The same in a file, which runs the same policy on rows of its own.
#[tokio::test]
async fn sqlite_hits_are_at_least_those_of_lru() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let driver = Sqlite::open(folder.path().join("memory.db"), &config()).unwrap();
    let store = DriverStore::sealed(
        driver,
        ring(KEY_A, None),
        &config(),
        Arc::clone(&clock) as _,
    )
    .await
    .unwrap();
    let [(hits, saved), (of_lru, saved_by_lru)] =
        replay(Arc::new(store), clock, 0.9, 100_000).await;
    println!("Zipf 0.9: {hits:.4} hits save {saved:.4}, LRU {of_lru:.4} save {saved_by_lru:.4}");
    assert!(hits > of_lru - 0.01 && saved > saved_by_lru + 0.03);
}
