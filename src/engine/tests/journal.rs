//! Purges that the store did not carry out: they outlive the process, in a journal.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{CacheStatus, Code};
use helmdeck_engine::{CacheConfig, Config, Engine, Memory, OnStoreLost};
use helmdeck_memory::Config as StoreConfig;
use helmdeck_system::{Journal, System};
use helmdeck_testkit::{
    Fault, FaultyStore, ManualClock, call, function, keyring, manifest, patient,
};

use crate::support::{echo, status, with_input};

/// A process on a store in a file, with its own data folder.
struct JournalFixture {
    engine: Engine,
    store: Arc<FaultyStore>,
    journal: Journal,
    clock: Arc<ManualClock>,
}

impl JournalFixture {
    async fn start(store: &Path, data: &Path, cache: CacheConfig) -> Self {
        let clock = Arc::new(ManualClock::default());
        let url = format!("sqlite:{}", store.display());
        let inner = helmdeck_memory::open(
            &url,
            keyring(),
            StoreConfig::default(),
            Arc::clone(&clock) as _,
        )
        .await;
        let store = FaultyStore::new(inner.unwrap());
        let journal = Journal::at(
            data.join("journal.db"),
            Duration::from_secs(10),
            Some(keyring()),
        );
        let system = System::at(data.join("helmdeck.db")).with_journal(journal.clone());
        let memory = Memory {
            store: Arc::clone(&store) as _,
            keyring: Arc::new(keyring()),
            system: Some(system),
        };
        let text = manifest("t.write", "", "[memory]\ninvalidates = [\"repo:{repo}\"]");
        let (write, _) = function(&with_input(&text), |_, input| async move {
            Ok(helmdeck_core::Reply::json(input))
        });
        let engine = Engine::builder(Config { cache, ..patient() })
            .builtins(vec![echo("tags = [\"repo:{repo}\"]").0, write])
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build();
        Self {
            engine,
            store,
            journal,
            clock,
        }
    }

    /// Reads, waits until the answer is stored, and returns whether it came from the cache.
    async fn read(&self, repo: &str) -> CacheStatus {
        let outcome = self
            .engine
            .call(call("t.echo", &format!("{{\"repo\":\"{repo}\"}}")))
            .await
            .unwrap();
        self.engine.memory().unwrap().flush().await;
        status(&outcome)
    }

    async fn entries(&self) -> usize {
        self.journal.entries("purge").await.unwrap().len()
    }
}

const WRITE: &str = "{\"repo\":\"a\"}";

#[tokio::test]
async fn purge_outlives_the_process_that_could_not_carry_it_out() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (folder.path().join("memory.db"), folder.path().join("one"));
    let one = JournalFixture::start(&store, &data, patient().cache).await;
    assert_eq!(
        (one.read("a").await, one.read("b").await),
        (CacheStatus::Miss, CacheStatus::Miss)
    );
    assert!(
        !one.engine
            .call(call("t.write", "{\"repo\":\"c\"}"))
            .await
            .unwrap()
            .pending
    );
    assert_eq!(one.entries().await, 0);

    one.store.set(Fault::All);
    let outcome = one.engine.call(call("t.write", WRITE)).await.unwrap();
    assert!(
        outcome.pending
            && String::from_utf8(outcome.to_json())
                .unwrap()
                .contains(",\"pending\":true")
    );
    assert_eq!(one.entries().await, 1, "before the answer leaves");
    assert!(one.engine.metrics().contains("helmdeck_purges_pending 1"));
    assert_eq!(one.engine.memory().unwrap().position(), None);
    assert_eq!(one.engine.shutdown().await, 1);

    // Another data folder does not know of it.
    let other = JournalFixture::start(&store, &folder.path().join("other"), patient().cache).await;
    assert_eq!(
        (other.read("a").await, other.read("b").await),
        (CacheStatus::Hit, CacheStatus::Hit)
    );
    other.engine.shutdown().await;

    let two = JournalFixture::start(&store, &data, patient().cache).await;
    assert_eq!(
        (two.read("a").await, two.read("b").await),
        (CacheStatus::Miss, CacheStatus::Hit)
    );
    assert_eq!(two.entries().await, 0);
    assert!(two.engine.metrics().contains("helmdeck_purges_pending 0"));
    assert_eq!(two.engine.shutdown().await, 0);
}

#[tokio::test]
async fn purge_is_carried_out_when_the_store_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let one = JournalFixture::start(
        &folder.path().join("memory.db"),
        folder.path(),
        patient().cache,
    )
    .await;
    one.read("a").await;
    one.store.set(Fault::Writes);
    assert!(
        one.engine
            .call(call("t.write", WRITE))
            .await
            .unwrap()
            .pending
    );
    one.store.set(Fault::None);
    helmdeck_testkit::until("the purge", async || one.entries().await == 0).await;
    assert!(one.engine.metrics().contains("helmdeck_purges_pending 0"));
    assert!(
        !one.engine
            .call(call("t.write", WRITE))
            .await
            .unwrap()
            .pending
    );
}

#[tokio::test]
async fn entry_that_does_not_open_purges_everything() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (folder.path().join("memory.db"), folder.path().join("data"));
    let one = JournalFixture::start(&store, &data, patient().cache).await;
    one.read("a").await;
    one.journal.add("purge", b"not an entry").await.unwrap();
    one.engine.shutdown().await;
    let two = JournalFixture::start(&store, &data, patient().cache).await;
    assert_eq!(two.read("a").await, CacheStatus::Miss);
    assert_eq!(two.entries().await, 0);
}

#[tokio::test]
async fn writes_are_refused_while_the_store_is_lost_if_the_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheConfig {
        on_store_lost: OnStoreLost::RefuseWrites,
        ..patient().cache
    };
    let one = JournalFixture::start(&folder.path().join("memory.db"), folder.path(), cache).await;
    assert!(
        !one.engine
            .call(call("t.write", WRITE))
            .await
            .unwrap()
            .pending
    );
    one.store.set(Fault::All);
    one.clock.advance(Duration::from_secs(1));
    let error = one.engine.call(call("t.write", WRITE)).await.unwrap_err();
    assert_eq!(error.code(), Code::Overloaded);
    assert!(
        error.retry_after().is_some() && error.message().contains("refuse_writes"),
        "{error}"
    );
    assert_eq!(one.entries().await, 0, "it did not run");
    one.store.set(Fault::None);
    one.clock.advance(Duration::from_secs(1));
    assert!(
        !one.engine
            .call(call("t.write", WRITE))
            .await
            .unwrap()
            .pending
    );
}

#[tokio::test]
async fn damaged_journal_purges_everything_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (folder.path().join("memory.db"), folder.path().join("data"));
    let one = JournalFixture::start(&store, &data, patient().cache).await;
    one.read("a").await;
    one.engine.shutdown().await;
    std::fs::write(
        data.join("journal.db"),
        "no database, whatever its name says",
    )
    .unwrap();
    // It looks at the journal again all the time.
    let cache = CacheConfig {
        counters_interval: Duration::from_millis(1),
        ..patient().cache
    };
    let two = JournalFixture::start(&store, &data, cache).await;
    assert_eq!(
        two.read("a").await,
        CacheStatus::Miss,
        "nobody knows what was purged"
    );
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(two.read("a").await, CacheStatus::Hit);
    }
}
