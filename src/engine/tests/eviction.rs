//! Which answers a full store lets go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::CacheStatus;
use helmdeck_engine::{CacheConfig, Engine, Memory};
use helmdeck_memory::{Kind, KindLimits, Limits, Store};
use helmdeck_testkit::{ManualClock, call, keyring, patient};

use crate::support::{echo, status};

#[tokio::test(start_paused = true)]
async fn answer_read_in_memory_stays_in_store() {
    let clock = Arc::new(ManualClock::default());
    let kinds = BTreeMap::from([(Kind::Cache, KindLimits { rows: Some(3), ..KindLimits::default() })]);
    let limits = Limits { kinds, ..Limits::default() };
    let config = helmdeck_memory::Config { limits, ..helmdeck_memory::Config::default() };
    let store: Arc<dyn Store> =
        helmdeck_memory::open("memory:", keyring(), config, Arc::clone(&clock) as _).await.unwrap();
    let engine = || {
        let memory = Memory { store: Arc::clone(&store), keyring: Arc::new(keyring()), system: None };
        Engine::builder(patient()).builtins(vec![echo("").0]).memory(memory).clock(Arc::clone(&clock) as _).build()
    };
    let ask = async |engine: &Engine, n: u32| {
        clock.advance(Duration::from_micros(1));
        let outcome = engine.call(call("t.echo", &format!("{{\"n\":{n}}}"))).await.unwrap();
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
    assert_eq!(ask(&cold, 0).await, CacheStatus::Hit, "the oldest, but it was read");
    assert_eq!(ask(&cold, 1).await, CacheStatus::Miss);
}
