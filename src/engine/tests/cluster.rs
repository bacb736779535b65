//! `single_flight = "cluster"`: one run per key across engines on one store, and never an error or
//! an endless wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use helmdeck_core::{Builtin, CacheStatus, Code, Error, Json, Outcome, Reply};
use helmdeck_engine::{CacheConfig, Config, Engine, Memory};
use helmdeck_memory::Store;
use helmdeck_testkit::{
    Counted, Fault, FaultyStore, ManualClock, ReplicaStore, call, function, keyring, manifest,
    patient, sealed_memory,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::support::status;

/// Result of the handler in a run, once it has a permit.
type Deed = fn(usize) -> Result<Reply, Error>;

/// Two engines on one store with the same pack, whose runs wait for a permit each.
struct Pair {
    engines: [Engine; 2],
    stores: [Arc<ReplicaStore>; 2],
    faulty: Arc<FaultyStore>,
    counted: [Counted; 2],
    clock: Arc<ManualClock>,
    permits: Arc<Semaphore>,
    started: Arc<Semaphore>,
}

fn answer(n: usize) -> Result<Reply, Error> {
    Ok(Reply::json(Json::parse(format!("{{\"n\":{n}}}")).unwrap()))
}

impl Pair {
    async fn new(memory: &str, deed: Deed) -> Self {
        Self::with(memory, deed, patient().cache).await
    }

    async fn with(memory: &str, deed: Deed, cache: CacheConfig) -> Self {
        let clock = Arc::new(ManualClock::default());
        let faulty = FaultyStore::new(sealed_memory(Arc::clone(&clock) as _).await);
        let inner = Arc::clone(&faulty) as Arc<dyn Store>;
        let stores = [(); 2].map(|()| ReplicaStore::silent(&inner));
        let (permits, started) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let runs = Arc::new(AtomicUsize::new(0));
        let text = manifest(
            "t.gated",
            "read_only = true",
            &format!("timeout = \"60s\"\n[memory]\ncache = true\nttl = \"60s\"\n{memory}"),
        );
        let packs: [(Builtin, Counted); 2] = [(); 2].map(|()| {
            let (permits, started, runs) = (
                Arc::clone(&permits),
                Arc::clone(&started),
                Arc::clone(&runs),
            );
            function(&text, move |_, _| {
                let (permits, started) = (Arc::clone(&permits), Arc::clone(&started));
                let n = runs.fetch_add(1, Ordering::SeqCst) + 1;
                async move {
                    started.add_permits(1);
                    permits.acquire().await.unwrap().forget();
                    deed(n)
                }
            })
        });
        let counted = [packs[0].1.clone(), packs[1].1.clone()];
        let mut stores_left = stores.iter().cloned();
        let engines = packs.map(|(pack, _)| {
            let store = stores_left.next().unwrap();
            Engine::builder(Config {
                cache: cache.clone(),
                ..Config::default()
            })
            .builtins(vec![pack])
            .memory(Memory {
                store,
                keyring: Arc::new(keyring()),
                system: None,
            })
            .clock(Arc::clone(&clock) as _)
            .build()
        });
        assert!(
            engines[0].refused().is_empty(),
            "{:?}",
            engines[0].refused()
        );
        Self {
            engines,
            stores,
            faulty,
            counted,
            clock,
            permits,
            started,
        }
    }

    fn call(&self, engine: usize) -> JoinHandle<helmdeck_core::Result<Outcome>> {
        let engine = self.engines[engine].clone();
        tokio::spawn(async move { engine.call(call("t.gated", "{}")).await })
    }

    async fn begun(&self) {
        self.started.acquire().await.unwrap().forget();
    }

    /// Waits until this engine is a waiter: another has the lock, as the store has reported at
    /// least once.
    async fn waits(&self, engine: usize) {
        while self.stores[engine].locks() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn runs(&self) -> usize {
        self.counted.iter().map(Counted::runs).sum()
    }

    fn metric(&self, engine: usize, outcome: &str) -> bool {
        let line = format!("helmdeck_cluster_waits_total{{outcome=\"{outcome}\"}} 1");
        self.engines[engine]
            .metrics()
            .lines()
            .any(|of_metrics| of_metrics == line)
    }

    /// Starts a run on the first engine and a call on the second that waits for it.
    async fn one_runs_and_one_waits(&self) -> [JoinHandle<helmdeck_core::Result<Outcome>>; 2] {
        let first = self.call(0);
        self.begun().await;
        let second = self.call(1);
        self.waits(1).await;
        [first, second]
    }
}

async fn ok(call: JoinHandle<helmdeck_core::Result<Outcome>>) -> (CacheStatus, String) {
    let outcome = call.await.unwrap().unwrap();
    (status(&outcome), outcome.output.as_str().to_owned())
}

const CLUSTER: &str = "single_flight = \"cluster\"";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn identical_misses_on_two_engines_run_once() {
    let pair = Pair::new(CLUSTER, answer).await;
    for round in 1..=3 {
        let calls: Vec<_> = (0..100).map(|n| pair.call(n % 2)).collect();
        pair.begun().await;
        pair.permits.add_permits(1);
        let mut misses = 0;
        for call in calls {
            let (status, output) = ok(call).await;
            assert_eq!(output, format!("{{\"n\":{round}}}"));
            assert!(
                matches!(
                    status,
                    CacheStatus::Miss | CacheStatus::Coalesced | CacheStatus::Hit
                ),
                "{status:?}"
            );
            misses += usize::from(status == CacheStatus::Miss);
        }
        assert_eq!((pair.runs(), misses), (round, 1));
        for engine in &pair.engines {
            engine.memory().unwrap().flush().await;
        }
        pair.clock.advance(Duration::from_secs(61));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn default_is_one_run_per_engine_without_lock() {
    let pair = Pair::new("", answer).await;
    let calls: Vec<_> = (0..100).map(|n| pair.call(n % 2)).collect();
    pair.permits.add_permits(2);
    for call in calls {
        ok(call).await;
    }
    assert!(pair.runs() <= 2, "{}", pair.runs());
    assert_eq!(
        pair.stores.iter().map(|store| store.locks()).sum::<usize>(),
        0
    );
}

#[tokio::test]
async fn who_waited_is_answered_from_the_store() {
    let pair = Pair::new(CLUSTER, answer).await;
    let [first, second] = pair.one_runs_and_one_waits().await;
    pair.permits.add_permits(1);
    assert_eq!(ok(first).await, (CacheStatus::Miss, "{\"n\":1}".to_owned()));
    assert_eq!(ok(second).await, (CacheStatus::Hit, "{\"n\":1}".to_owned()));
    assert!(pair.metric(1, "found"));
}

#[tokio::test]
async fn failed_or_unstored_run_lets_next_engine_run() {
    let failing: Deed = |n| match n {
        1 => Err(Error::new(Code::HandlerFailed, "no")),
        _ => answer(n),
    };
    let panicking: Deed = |n| match n {
        1 => panic!("told to"),
        _ => answer(n),
    };
    let refused: Deed = |n| {
        answer(n).map(|mut reply| {
            reply.no_store = true;
            reply
        })
    };
    for (deed, works) in [(failing, false), (panicking, false), (refused, true)] {
        let pair = Pair::new(CLUSTER, deed).await;
        let [first, second] = pair.one_runs_and_one_waits().await;
        pair.permits.add_permits(2);
        assert_eq!(first.await.unwrap().is_ok(), works);
        assert_eq!(
            ok(second).await,
            (CacheStatus::Miss, "{\"n\":2}".to_owned())
        );
        assert!(pair.metric(1, "ran"));
    }
}

#[tokio::test]
async fn abandoned_run_lets_next_engine_run() {
    let pair = Pair::new(CLUSTER, answer).await;
    let [first, second] = pair.one_runs_and_one_waits().await;
    first.abort();
    pair.begun().await;
    pair.permits.add_permits(1);
    assert_eq!(
        ok(second).await,
        (CacheStatus::Miss, "{\"n\":2}".to_owned())
    );
}

#[tokio::test]
async fn expired_lock_lets_both_engines_run() {
    let pair = Pair::new(CLUSTER, answer).await;
    let [first, second] = pair.one_runs_and_one_waits().await;
    // The handler may run for 60 s, and its answer has 10 s more to be stored.
    pair.clock.advance(Duration::from_secs(71));
    pair.begun().await;
    pair.permits.add_permits(2);
    assert_eq!(
        (ok(first).await.0, ok(second).await.0, pair.runs()),
        (CacheStatus::Miss, CacheStatus::Miss, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn when_the_wait_is_over_the_handler_runs() {
    // Long enough for one report that another process has the lock.
    let cache = CacheConfig {
        cluster_wait: Duration::from_secs(2),
        ..patient().cache
    };
    let pair = Pair::with(CLUSTER, answer, cache).await;
    let started = tokio::time::Instant::now();
    let [first, second] = pair.one_runs_and_one_waits().await;
    pair.begun().await;
    let waited = started.elapsed().as_millis();
    assert!((2_000..2_010).contains(&waited), "{waited} ms");
    pair.permits.add_permits(2);
    assert_eq!(
        (ok(first).await.0, ok(second).await.0, pair.runs()),
        (CacheStatus::Miss, CacheStatus::Miss, 2)
    );
    assert!(pair.metric(1, "late"));
}

#[tokio::test]
async fn store_trouble_runs_handler_without_lock() {
    for fault in [Fault::Writes, Fault::Stall] {
        let cache = CacheConfig {
            read_budget: Duration::from_millis(20),
            breaker_failures: 3,
            ..CacheConfig::default()
        };
        let pair = Pair::with(CLUSTER, answer, cache).await;
        pair.faulty.set(fault);
        for n in 1..=6 {
            pair.permits.add_permits(1);
            assert_eq!(
                ok(pair.call(0)).await,
                (CacheStatus::Miss, format!("{{\"n\":{n}}}")),
                "{fault:?}"
            );
            pair.clock.advance(Duration::from_secs(61));
        }
        let failed = "helmdeck_cluster_waits_total{outcome=\"failed\"} ";
        assert!(pair.engines[0].metrics().contains(failed), "{fault:?}");
    }
    // While the breaker is open, no lock is requested from the store either.
    let cache = CacheConfig {
        breaker_failures: 1,
        breaker_open_for: Duration::from_secs(3600),
        ..CacheConfig::default()
    };
    let pair = Pair::with(CLUSTER, answer, cache).await;
    pair.faulty.set(Fault::Writes);
    for _ in 0..3 {
        pair.permits.add_permits(1);
        ok(pair.call(0)).await;
        pair.clock.advance(Duration::from_secs(61));
    }
    assert_eq!(pair.stores[0].locks(), 1);
}

#[tokio::test]
async fn background_revalidation_runs_once_over_engines() {
    let pair = Pair::new(
        "single_flight = \"cluster\"\nstale_while_revalidate = \"1h\"",
        answer,
    )
    .await;
    pair.permits.add_permits(1);
    ok(pair.call(0)).await;
    pair.begun().await;
    pair.engines[0].memory().unwrap().flush().await;
    assert_eq!(ok(pair.call(1)).await.0, CacheStatus::Hit);
    pair.clock.advance(Duration::from_secs(61));
    let before = pair.stores[1].locks();
    assert_eq!(ok(pair.call(0)).await.0, CacheStatus::Stale);
    pair.begun().await;
    assert_eq!(ok(pair.call(1)).await.0, CacheStatus::Stale);
    while pair.stores[1].locks() < before + 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pair.permits.add_permits(1);
    for engine in 0..2 {
        loop {
            match ok(pair.call(engine)).await {
                (CacheStatus::Hit | CacheStatus::Coalesced, output) => {
                    break assert_eq!(output, "{\"n\":2}");
                }
                (CacheStatus::Stale, _) => tokio::time::sleep(Duration::from_millis(1)).await,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(pair.runs(), 2);
}
