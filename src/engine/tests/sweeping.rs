//! The janitor of a server, and its metrics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::Clock;
use helmdeck_engine::{Engine, Memory};
use helmdeck_memory::{JanitorConfig, Kind, Namespace, Put, Store, StoreWrapper};
use helmdeck_testkit::{Fault, FaultyStore, ManualClock, call, keyring, patient, sealed_memory};

use crate::support::echo;

async fn until(engine: &Engine, line: &str) {
    helmdeck_testkit::until(line, async || {
        engine
            .metrics()
            .lines()
            .any(|of_metrics| of_metrics == line)
    })
    .await;
}

/// The store of one of several servers, which stays open for the others when that server ends.
struct Shared(Arc<dyn Store>);

#[async_trait]
impl StoreWrapper for Shared {
    fn inner(&self) -> helmdeck_memory::Result<&dyn Store> {
        Ok(&*self.0)
    }

    async fn pass_close(&self) -> helmdeck_memory::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn one_server_sweeps_until_another_takes_over() {
    let clock = Arc::new(ManualClock::default());
    let store = sealed_memory(Arc::clone(&clock) as _).await;
    let serve = || {
        let memory = Memory {
            store: Arc::new(Shared(Arc::clone(&store))),
            keyring: Arc::new(keyring()),
            system: None,
        };
        let engine = Engine::builder(patient())
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build();
        engine.start_sweeping(JanitorConfig {
            interval: Duration::from_millis(1),
            ..JanitorConfig::default()
        });
        engine
    };
    let runs = |engine: &Engine| -> u64 {
        let metrics = engine.metrics();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("helmdeck_janitor_runs_total "));
        line.map_or(0, |count| count.parse().unwrap())
    };
    let run_again = async |engine: &Engine| {
        let before = runs(engine);
        while runs(engine) < before + 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let first = serve();
    run_again(&first).await;
    let second = serve();
    run_again(&first).await;
    assert_eq!(runs(&second), 0, "one of two sweeps");
    assert!(
        !second.metrics().contains("helmdeck_memory_rows{"),
        "and measures the store"
    );
    let third = serve();
    first.shutdown().await;
    // At once, without waiting for the end of the term: time stands still here.
    while runs(&second) + runs(&third) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (elected, other) = if runs(&second) > 0 {
        (second, third)
    } else {
        (third, second)
    };
    run_again(&elected).await;
    assert_eq!(runs(&other), 0);
    elected.shutdown().await;
    run_again(&other).await;
    other.shutdown().await;
}

#[tokio::test]
async fn janitor_metrics_show_work_and_findings() {
    let clock = Arc::new(ManualClock::default());
    let store = FaultyStore::new(sealed_memory(Arc::clone(&clock) as _).await);
    let (pack, _) = echo("");
    let engine = Engine::builder(patient())
        .builtins(vec![pack])
        .memory(Memory {
            store: Arc::clone(&store) as _,
            keyring: Arc::new(keyring()),
            system: None,
        })
        .clock(Arc::clone(&clock) as _)
        .build();
    let mine = Namespace::new("local", "me", None);
    store
        .put(Put::new(mine, Kind::Note, "k", "a note"))
        .await
        .unwrap();
    for n in 0..3 {
        engine
            .call(call("t.echo", &format!("{{\"n\":{n}}}")))
            .await
            .unwrap();
    }
    engine.memory().unwrap().flush().await;
    clock.advance(Duration::from_secs(61));
    assert!(
        !engine.metrics().contains("janitor"),
        "nothing is swept unless somebody asks for it"
    );

    engine.start_sweeping(JanitorConfig {
        interval: Duration::from_millis(1),
        ..JanitorConfig::default()
    });
    until(&engine, "helmdeck_janitor_swept_rows_total 3").await;
    until(&engine, "helmdeck_memory_rows{kind=\"cache\"} 0").await;
    until(&engine, "helmdeck_memory_rows{kind=\"note\"} 1").await;
    until(&engine, "helmdeck_memory_ended_rows 0").await;
    let now = clock.now().micros() / 1_000_000;
    until(
        &engine,
        &format!("helmdeck_janitor_last_run_timestamp_seconds {now}.0"),
    )
    .await;
    let bytes = engine.metrics();
    let bytes = bytes
        .lines()
        .find_map(|line| line.strip_prefix("helmdeck_memory_bytes{kind=\"note\"} "))
        .unwrap();
    assert!(
        bytes.parse::<u64>().unwrap() > "a note".len() as u64,
        "{bytes}"
    );

    store.set(Fault::Writes);
    let counts = |engine: &Engine, name: &str| -> u64 {
        let metrics = engine.metrics();
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    let failures = async || counts(&engine, "helmdeck_janitor_failures_total ") >= 2;
    helmdeck_testkit::until("two failures", failures).await;
    store.set(Fault::None);
    engine.shutdown().await;
    let runs = |engine: &Engine| counts(engine, "helmdeck_janitor_runs_total ");
    let before = runs(&engine);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(runs(&engine), before, "it has stopped");
}
