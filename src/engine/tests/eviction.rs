//! Which answers a full store, and a full write queue, let go.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helmdeck_core::CacheStatus;
use helmdeck_engine::{CacheConfig, Config, Engine, Memory};
use helmdeck_memory::{Kind, KindLimits, Limits, Store};
use helmdeck_testkit::{Fault, FaultyStore, ManualClock, call, keyring, patient, sealed_memory};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{echo, status};

#[tokio::test(start_paused = true)]
async fn answer_read_in_memory_stays_in_store() {
    let clock = Arc::new(ManualClock::default());
    let kinds = BTreeMap::from([(
        Kind::Cache,
        KindLimits {
            rows: Some(3),
            ..KindLimits::default()
        },
    )]);
    let limits = Limits {
        kinds,
        ..Limits::default()
    };
    let config = helmdeck_memory::Config {
        limits,
        ..helmdeck_memory::Config::default()
    };
    let store: Arc<dyn Store> =
        helmdeck_memory::open("memory:", keyring(), config, Arc::clone(&clock) as _)
            .await
            .unwrap();
    let engine = || {
        let memory = Memory {
            store: Arc::clone(&store),
            keyring: Arc::new(keyring()),
            system: None,
        };
        Engine::builder(patient())
            .builtins(vec![echo("").0])
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build()
    };
    let ask = async |engine: &Engine, n: u32| {
        clock.advance(Duration::from_micros(1));
        let outcome = engine
            .call(call("t.echo", &format!("{{\"n\":{n}}}")))
            .await
            .unwrap();
        engine.memory().unwrap().flush().await;
        status(&outcome)
    };
    let first = engine();
    for n in 0..3 {
        assert_eq!(ask(&first, n).await, CacheStatus::Miss);
    }
    assert_eq!(ask(&first, 0).await, CacheStatus::Hit);
    // The store is told in the background.
    tokio::time::sleep(CacheConfig::default().counters_interval * 2).await;
    assert_eq!(ask(&first, 3).await, CacheStatus::Miss);
    let cold = engine();
    assert_eq!(
        ask(&cold, 0).await,
        CacheStatus::Hit,
        "the oldest, but it was read"
    );
    assert_eq!(ask(&cold, 1).await, CacheStatus::Miss);
}

/// Collects the warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Line<'l>(&'l mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut Line(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn dropped_answers_are_logged_once_a_minute() {
    let warnings = Warnings::default();
    let _logged = tracing::subscriber::set_default(warnings.clone());
    let clock = Arc::new(ManualClock::default());
    let store = FaultyStore::new(sealed_memory(Arc::clone(&clock) as _).await);
    store.set(Fault::Stall);
    let cache = CacheConfig {
        write_queue: 4,
        watch_interval: Duration::from_secs(3600),
        // The store stalls for the whole test: nothing but the queue drops answers.
        write_budget: Duration::from_secs(36_000),
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
    .builtins(vec![echo("").0])
    .memory(memory)
    .clock(Arc::clone(&clock) as _)
    .build();
    let mut n = 0;
    let mut miss = async |count: u32| {
        for _ in 0..count {
            n += 1;
            engine
                .call(call("t.echo", &format!("{{\"n\":{n}}}")))
                .await
                .unwrap();
        }
        tokio::time::sleep(CacheConfig::default().counters_interval * 2).await;
    };
    let logged = || {
        let lines = warnings.0.lock().unwrap();
        lines
            .iter()
            .filter(|line| line.contains("the cheapest ones are dropped"))
            .cloned()
            .collect::<Vec<_>>()
    };
    let dropped = || {
        let metrics = engine.metrics();
        let of = metrics
            .lines()
            .find_map(|line| line.strip_prefix("helmdeck_cache_writes_dropped_total "));
        of.unwrap().parse::<u64>().unwrap()
    };
    miss(3).await;
    assert!(logged().is_empty(), "{:?}", logged());
    miss(20).await;
    let first = dropped();
    assert!(
        first > 0 && logged().len() == 1 && logged()[0].contains(&format!("dropped={first} ")),
        "{:?}",
        logged()
    );
    miss(20).await;
    assert_eq!(logged().len(), 1);
    let more = dropped() - first;
    clock.advance(Duration::from_secs(60));
    miss(0).await;
    assert!(
        more > 0 && logged().len() == 2 && logged()[1].contains(&format!("dropped={more} ")),
        "{:?}",
        logged()
    );
    clock.advance(Duration::from_secs(600));
    miss(0).await;
    assert_eq!(logged().len(), 2, "nothing was dropped since");
}
