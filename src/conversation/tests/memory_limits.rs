//! Case 14 of the reference, W17: memory limits of conversations in this process.
//!
//! They hold however many conversations there are.

use std::sync::Arc;

use helmdeck_core::SystemClock;
use helmdeck_events::Bus;
use helmdeck_memory::drivers::memory::Memory;
use helmdeck_memory::{Config as StoreConfig, DriverStore, Store};

use crate::conformance::ScriptedSummarizer;
use crate::conformance::fixture::turn;
use crate::{Config, ConversationMemory, Dependencies, Identity, Strategy};

const CAP: u64 = 256 << 10;

fn open(store: &Arc<dyn Store>, strategy: Strategy) -> ConversationMemory {
    let config = Config {
        strategy,
        hot_bytes: CAP,
        ..Config::default()
    };
    let clock = Arc::new(SystemClock::default());
    let dependencies = Dependencies {
        store: Arc::clone(store),
        events: Bus::new(16, clock.clone()),
        clock,
        summarizer: Some(Arc::new(ScriptedSummarizer::default())),
    };
    ConversationMemory::open(config, dependencies).unwrap()
}

fn name(number: usize) -> Identity {
    Identity::new(
        &format!("t{}", number % 10),
        "u",
        &format!("a-dialogue-with-a-name-{number}"),
    )
}

/// Touches `count` conversations; one of each `every` gets a turn.
async fn conversations(strategy: Strategy, count: usize, every: usize) {
    let config = StoreConfig::default();
    let store: Arc<dyn Store> = Arc::new(DriverStore::plain(
        Memory::new(),
        &config,
        Arc::new(SystemClock::default()),
    ));
    let memory = open(&store, strategy);
    let under = async || memory.metrics().hot_bytes <= CAP;
    for number in 0..count {
        if number % every == 0 {
            memory.add_turn(&name(number), turn(number)).await.unwrap();
        } else {
            assert!(memory.context(&name(number)).await.unwrap().is_empty());
        }
        if number % (count / 20) == 0 {
            crate::conformance::eventually("memory to be under its cap", under).await;
        }
    }
    // What is read is what was written, from memory or not.
    for number in (0..count).step_by(every) {
        let patch = memory.context(&name(number)).await.unwrap();
        assert_eq!(
            crate::conformance::fixture::recent(&patch),
            [number.to_string()]
        );
    }
    crate::conformance::eventually("memory to be under its cap", under).await;
    let metrics = memory.metrics();
    assert_eq!(metrics.turns_added, count.div_ceil(every) as u64);
    assert!(
        metrics.hot_misses as usize > count / 2,
        "most were pushed out: {metrics:?}"
    );
    memory.close(std::time::Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_conversations_stay_under_the_cap() {
    conversations(Strategy::Truncation, 30_000, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_rolling_summary_too() {
    conversations(Strategy::RollingSummary, 5_000, 10).await;
}

/// The bytes of this process that are in memory, and of its threads the number.
#[tokio::test]
async fn turns_with_a_credential_are_kept_and_counted() {
    let config = StoreConfig::default();
    let store: Arc<dyn Store> = Arc::new(DriverStore::plain(
        Memory::new(),
        &config,
        Arc::new(SystemClock::default()),
    ));
    let memory = open(&store, Strategy::Truncation);
    let credentials = helmdeck_core::leaks::samples::credentials();
    for (number, (_, credential)) in credentials.iter().enumerate() {
        memory.add_turn(&name(0), turn(number)).await.unwrap();
        let added = memory
            .add_turn(
                &name(0),
                crate::NewTurn::new(format!("use {credential}"), "yes"),
            )
            .await
            .unwrap();
        assert!(added.id.is_some(), "no turn is refused");
    }
    let counted = async || memory.metrics().turns_with_secret == credentials.len() as u64;
    crate::conformance::eventually("every turn to be scanned", counted).await;
    assert_eq!(memory.metrics().turns_added, 2 * credentials.len() as u64);
    memory.close(std::time::Duration::from_secs(60)).await;
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Memory limits measured by the system: memory without a weight would show here.
///
/// The store holds its rows in a file, so what grows is the conversation memory alone. (With
/// `nextest` each test is a separate process.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_use_is_independent_of_conversations() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig::default();
    let driver =
        helmdeck_memory::drivers::sqlite::Sqlite::open(folder.path().join("memory.db"), &config)
            .unwrap();
    let store: Arc<dyn Store> = Arc::new(DriverStore::plain(
        driver,
        &config,
        Arc::new(SystemClock::default()),
    ));
    let memory = open(&store, Strategy::Truncation);
    let mut last = 0;
    let mut grown = Vec::new();
    for round in 0..5usize {
        for number in round * 5_000..(round + 1) * 5_000 {
            memory.context(&name(number)).await.unwrap();
            if number % 100 == 0 {
                memory
                    .add_turn(&name(number), turn("x".repeat(1000)))
                    .await
                    .unwrap();
            }
        }
        let now = resident();
        grown.push(now.saturating_sub(last));
        last = now;
    }
    // Of 5,000 conversations nothing may stay, and least of all what a place for one takes (a
    // kilobyte, 5 MB). The first rounds fill caches, and in any of the others the allocator may
    // take room that it keeps; what stays of conversations shows in each.
    let least = grown[2..].iter().min().unwrap();
    assert!(
        *least < 2 << 20,
        "it grew by {grown:?} bytes in five rounds"
    );
    memory.close(std::time::Duration::from_secs(60)).await;
}
