//! A failing store costs the cache, never the call.
//!
//! Time is paused: it moves when everything waits, so that no budget runs out because the machine
//! is slow.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::CacheStatus;
use helmdeck_engine::{AuditConfig, CacheConfig, Config, Engine, Memory, Selector};
use helmdeck_testkit::{Counted, Fault, FaultyStore, ManualClock, call, keyring, sealed_memory};
use tokio::time::Instant;

use crate::support::{echo, status};

struct Fixture {
    engine: Engine,
    store: Arc<FaultyStore>,
    clock: Arc<ManualClock>,
    counted: Counted,
}

async fn fixture() -> Fixture {
    with(CacheConfig::default()).await
}

async fn with(cache: CacheConfig) -> Fixture {
    let clock = Arc::new(ManualClock::default());
    let store = FaultyStore::new(sealed_memory(Arc::clone(&clock) as _).await);
    let (pack, counted) = echo("");
    // Without a hot tier, so that every call asks the store.
    let cache = CacheConfig {
        hot_bytes: 0,
        watch_interval: Duration::from_secs(3600),
        ..cache
    };
    let memory = Memory {
        store: Arc::clone(&store) as _,
        keyring: Arc::new(keyring()),
        system: None,
    };
    // The audit reads its head before it writes: not during a test that counts reads.
    let audit = AuditConfig {
        linger: Duration::from_secs(3600),
        ..AuditConfig::default()
    };
    let engine = Engine::builder(Config {
        cache,
        audit,
        ..Config::default()
    })
    .builtins(vec![pack])
    .memory(memory)
    .clock(Arc::clone(&clock) as _)
    .build();
    Fixture {
        engine,
        store,
        clock,
        counted,
    }
}

#[tokio::test(start_paused = true)]
async fn failing_store_runs_handler_once_per_call() {
    for fault in [Fault::Reads, Fault::Writes, Fault::All] {
        let fixture = fixture().await;
        fixture.store.set(fault);
        for n in 1..=20 {
            let outcome = fixture.engine.call(call("t.echo", "{}")).await.unwrap();
            fixture.engine.memory().unwrap().flush().await;
            assert_eq!(
                (status(&outcome), fixture.counted.runs()),
                (CacheStatus::Miss, n),
                "{fault:?}"
            );
        }
        let metrics = fixture.engine.metrics();
        assert!(
            metrics.contains("helmdeck_store_errors_total{operation="),
            "{fault:?}"
        );
    }
}

/// Returns how long something took, in whole milliseconds: timers are no finer.
async fn millis(something: impl Future) -> u128 {
    let started = Instant::now();
    something.await;
    started.elapsed().as_millis()
}

/// Whether a wait ended with a budget. A timer may be a millisecond late.
fn is_budget(waited: u128, budget: u128) -> bool {
    (budget..=budget + 1).contains(&waited)
}

#[tokio::test(start_paused = true)]
async fn stalling_store_costs_a_call_the_read_budget() {
    let fixture = fixture().await;
    fixture.store.set(Fault::Stall);
    for n in 1..=8 {
        let waited = millis(async {
            assert_eq!(
                status(&fixture.engine.call(call("t.echo", "{}")).await.unwrap()),
                CacheStatus::Miss
            );
        });
        let waited = waited.await;
        assert_eq!(fixture.counted.runs(), n);
        // Before the first run its cost is not known, then it is cheap: `read_budget`, until
        // `breaker_failures` have opened the breaker.
        let budget = match n {
            1 => 500,
            2..=5 => 50,
            _ => 0,
        };
        assert!(is_budget(waited, budget), "call {n}: {waited} ms");
    }
    assert_eq!(
        fixture.store.reads(),
        5,
        "the breaker leaves the store alone"
    );
}

#[tokio::test(start_paused = true)]
async fn stalling_store_costs_a_purge_the_write_budget() {
    let fixture = with(CacheConfig {
        write_budget: Duration::from_secs(2),
        ..CacheConfig::default()
    })
    .await;
    let memory = fixture.engine.memory().unwrap();
    fixture.store.set(Fault::Stall);
    let waited = millis(async { assert!(memory.purge(Selector::All).await.pending) }).await;
    assert!(is_budget(waited, 2_000), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_probes_and_closes() {
    let fixture = fixture().await;
    fixture.engine.call(call("t.echo", "{}")).await.unwrap();
    fixture.engine.memory().unwrap().flush().await;
    assert_eq!(
        status(&fixture.engine.call(call("t.echo", "{}")).await.unwrap()),
        CacheStatus::Hit
    );
    // Reads alone: that the writes of the answers still work closes nothing.
    fixture.store.set(Fault::Reads);
    for _ in 0..10 {
        fixture.engine.call(call("t.echo", "{}")).await.unwrap();
        fixture.engine.memory().unwrap().flush().await;
    }
    assert!(fixture.engine.memory().unwrap().breaker_is_open());
    assert!(fixture.engine.metrics().contains("helmdeck_breaker_open 1"));
    let (reads, _) = (fixture.store.reads(), fixture.store.set(Fault::None));
    fixture.engine.call(call("t.echo", "{}")).await.unwrap();
    assert_eq!(fixture.store.reads(), reads, "still left alone");
    // `breaker_open_for`, to the microsecond.
    fixture.clock.advance(Duration::from_micros(4_999_999));
    fixture.engine.call(call("t.echo", "{}")).await.unwrap();
    assert_eq!(fixture.store.reads(), reads, "still left alone");
    fixture.clock.advance(Duration::from_micros(1));
    assert_eq!(
        status(&fixture.engine.call(call("t.echo", "{}")).await.unwrap()),
        CacheStatus::Hit,
        "the probe is answered"
    );
    assert!(!fixture.engine.memory().unwrap().breaker_is_open());
    assert!(
        fixture
            .engine
            .metrics()
            .contains("helmdeck_breaker_opened_total 1")
    );
}

#[tokio::test(start_paused = true)]
async fn readiness_reads_the_store_itself() {
    let fixture = fixture().await;
    let store = async || {
        fixture
            .engine
            .ready()
            .await
            .into_iter()
            .find(|(name, _)| *name == "store")
            .unwrap()
            .1
    };
    assert_eq!(store().await, Ok(()));
    // No call has met the fault.
    fixture.store.set(Fault::Reads);
    assert_eq!(store().await, Ok(()), "one read a second, whoever asks");
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(
        store().await,
        Err("the store cannot be read: unavailable".to_owned())
    );
    fixture.store.set(Fault::None);
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(store().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn readiness_recovers_without_calls() {
    let fixture = fixture().await;
    let store = async || {
        fixture
            .engine
            .ready()
            .await
            .into_iter()
            .find(|(name, _)| *name == "store")
            .unwrap()
            .1
    };
    fixture.store.set(Fault::Reads);
    for _ in 0..10 {
        fixture.engine.call(call("t.echo", "{}")).await.unwrap();
    }
    let skipped = store().await.unwrap_err();
    assert!(skipped.contains("left alone"), "{skipped}");
    // A balancer that sends no calls to a degraded server must see when the store is back.
    fixture.clock.advance(Duration::from_secs(6));
    assert_eq!(
        store().await,
        Err("the store cannot be read: unavailable".to_owned())
    );
    fixture.store.set(Fault::None);
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(store().await, Ok(()));
    assert!(
        fixture.engine.memory().unwrap().breaker_is_open(),
        "no call has probed it"
    );
}

#[tokio::test(start_paused = true)]
async fn purge_holds_during_outage_and_completes_after() {
    let fixture = fixture().await;
    fixture.engine.call(call("t.echo", "{}")).await.unwrap();
    let memory = fixture.engine.memory().unwrap().clone();
    memory.flush().await;
    fixture.store.set(Fault::Writes);
    assert!(memory.purge(Selector::All).await.pending);
    let outcome = fixture.engine.call(call("t.echo", "{}")).await.unwrap();
    assert_eq!(
        status(&outcome),
        CacheStatus::Miss,
        "the row is still there, and not served"
    );
    fixture.store.set(Fault::None);
    memory.flush().await;
    assert_eq!(
        memory
            .store()
            .stats()
            .await
            .unwrap()
            .rows_by_kind
            .get("cache"),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_writes_and_counts_them() {
    let clock = Arc::new(ManualClock::default());
    let store = FaultyStore::new(sealed_memory(Arc::clone(&clock) as _).await);
    store.set(Fault::Stall);
    let (pack, _) = echo("");
    let cache = CacheConfig {
        write_queue: 4,
        watch_interval: Duration::from_secs(3600),
        ..CacheConfig::default()
    };
    let memory = Memory {
        store: Arc::clone(&store) as _,
        keyring: Arc::new(keyring()),
        system: None,
    };
    let engine = Engine::builder(Config {
        cache,
        ..Config::default()
    })
    .builtins(vec![pack])
    .memory(memory)
    .clock(clock)
    .build();
    for n in 0..50 {
        engine
            .call(call("t.echo", &format!("{{\"n\":{n}}}")))
            .await
            .unwrap();
    }
    let metrics = engine.metrics();
    let dropped = metrics
        .lines()
        .find_map(|line| line.strip_prefix("helmdeck_cache_writes_dropped_total "))
        .unwrap();
    assert!(dropped.parse::<u64>().unwrap() >= 40, "{dropped}");
}
