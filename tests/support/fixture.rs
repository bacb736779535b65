//! Test fixture: an engine over a sealed SQLite file, with a manual clock.
//!
//! It has a pack whose answers are checked at each call.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helmdeck_core::{CacheStatus, Call, Clock, Identity, Json, PackName, Reply};
use helmdeck_engine::{CacheConfig, Config, Engine, Memory};
use helmdeck_memory::{Config as StoreConfig, StoreError};
use helmdeck_testkit::{Counted, FaultyStore, ManualClock, function, keyring};
use serde_json::{Value, json};

/// Answers `{"n": <number of runs>, "input": <input>, "padding": <the requested number of x>}`.
const MANIFEST: &str = r#"
name = "t.echo"
version = "v1"
description = "test"
read_only = true
no_audit = true
[handler]
builtin = "t.echo"
[input.properties]
repo = { type = "string" }
padding = { type = "integer" }
[memory]
cache = true
ttl = "1h"
tags = ["repo:{repo}"]
"#;

/// Returns the settings for a store that never answers in time.
///
/// The budget of a read is the default one, that of a write is short.
pub(crate) fn hasty(hot_bytes: u64) -> CacheConfig {
    CacheConfig {
        hot_bytes,
        write_budget: Duration::from_millis(500),
        ..CacheConfig::default()
    }
}

/// Returns the settings for all other stores: they give time for every read and write.
pub(crate) fn patient(hot_bytes: u64) -> CacheConfig {
    CacheConfig {
        hot_bytes,
        ..helmdeck_testkit::patient().cache
    }
}

/// An engine over a real file.
pub(crate) struct Fixture {
    /// The engine.
    pub(crate) engine: Engine,
    /// Its clock.
    pub(crate) clock: Arc<ManualClock>,
    /// Between the engine and the store.
    pub(crate) faulty: Arc<FaultyStore>,
    /// The database.
    pub(crate) path: PathBuf,
    counted: Counted,
    /// What the handler answered, by caller and input.
    answers: Mutex<HashMap<(String, String), HashSet<u64>>>,
    _folder: Option<tempfile::TempDir>,
}

impl Fixture {
    /// Makes an engine over a new file, in memory if this machine has a file system there.
    pub(crate) async fn new(cache: CacheConfig) -> Self {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() {
            tempfile::tempdir_in(shm)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let mut fixture = Self::at(&folder.path().join("data/memory.db"), cache)
            .await
            .unwrap();
        fixture._folder = Some(folder);
        fixture
    }

    /// Makes an engine over a file.
    pub(crate) async fn at(path: &Path, cache: CacheConfig) -> Result<Self, StoreError> {
        let clock = Arc::new(ManualClock::default());
        let (engine, faulty, counted) = open(path, Arc::clone(&clock), cache).await?;
        Ok(Self {
            engine,
            clock,
            faulty,
            path: path.to_owned(),
            counted,
            answers: Mutex::default(),
            _folder: None,
        })
    }

    /// Calls the pack for the local caller.
    pub(crate) async fn call(&self, repo: &str) -> CacheStatus {
        self.call_as(Identity::local(), json!({ "repo": repo }))
            .await
    }

    /// Calls the pack and checks the answer.
    ///
    /// It is either what the handler answers to this input now (a miss, and then it ran exactly
    /// once). Or it is what it has answered this caller before (a hit, and then it did not run).
    pub(crate) async fn call_as(&self, identity: Identity, input: Value) -> CacheStatus {
        let place = (identity.user().to_owned(), input.to_string());
        let call = Call::new(
            PackName::new("t.echo").unwrap(),
            input.to_string(),
            Arc::new(identity),
        );
        let before = self.counted.runs();
        let outcome = self.engine.call(call).await.unwrap();
        let output = outcome.output.to_value();
        let n = output["n"].as_u64().unwrap();
        assert_eq!(output["input"], input);
        assert_eq!(
            output["padding"].as_str().unwrap().len() as u64,
            input["padding"].as_u64().unwrap_or(0)
        );
        let mut answers = self.answers.lock().unwrap();
        let status = outcome.cache.unwrap().status;
        match status {
            CacheStatus::Miss => {
                assert_eq!(
                    self.counted.runs(),
                    before + 1,
                    "{input}: the handler runs exactly once"
                );
                assert_eq!(
                    n,
                    before as u64 + 1,
                    "{input}: a miss answers what the handler said"
                );
                answers.entry(place).or_default().insert(n);
            }
            CacheStatus::Hit => {
                assert_eq!(self.counted.runs(), before, "{input}: a hit runs nothing");
                let told = answers.get(&place).is_some_and(|told| told.contains(&n));
                assert!(
                    told,
                    "{input}: a hit answers what this caller was told before, not {n}"
                );
            }
            other => panic!("{input}: {other:?}"),
        }
        status
    }

    /// Waits until everything that is queued for the store is written or lost.
    pub(crate) async fn settle(&self) {
        self.engine.memory().unwrap().flush().await;
    }

    /// Calls the pack for each input, and waits until the answers are in the file.
    pub(crate) async fn fill(&self, repos: &[&str]) {
        for repo in repos {
            assert_eq!(self.call(repo).await, CacheStatus::Miss, "{repo}");
        }
        self.settle().await;
    }

    /// Allows a hit on this input to be the answer that another fixture got.
    pub(crate) fn expect(&self, repo: &str, other: &Self) {
        let place = (
            Identity::local().user().to_owned(),
            json!({ "repo": repo }).to_string(),
        );
        let told = other.answers.lock().unwrap()[&place].clone();
        self.answers.lock().unwrap().insert(place, told);
    }

    /// Returns a metric: the sum over its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.engine.metrics();
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// Returns the number of rows that did not open and counted as a miss.
    pub(crate) fn unreadable(&self) -> u64 {
        self.metric("helmdeck_store_unreadable_total")
    }

    /// Returns whether the file contains the answer to an input, read through a separate
    /// connection.
    pub(crate) fn holds(&self, repo: &str) -> bool {
        let sql = "SELECT count(*) FROM memory_entries WHERE tags = ?1";
        let rows =
            super::outside(&self.path).query_row(sql, [tags(repo)], |row| row.get::<_, i64>(0));
        rows.is_ok_and(|rows| rows == 1)
    }
}

/// Returns the column `tags` of the answer to an input: its tag, and the families of it.
pub(crate) fn tags(repo: &str) -> String {
    format!("[\"repo:{repo}\",\"repo:*\",\"*\"]")
}

async fn open(
    path: &Path,
    clock: Arc<ManualClock>,
    cache: CacheConfig,
) -> Result<(Engine, Arc<FaultyStore>, Counted), StoreError> {
    let url = format!("sqlite:{}", path.display());
    let store = helmdeck_memory::open(
        &url,
        keyring(),
        StoreConfig::default(),
        Arc::clone(&clock) as Arc<dyn Clock>,
    )
    .await?;
    let faulty = FaultyStore::new(store);
    let runs = AtomicUsize::new(0);
    let (pack, counted) = function(MANIFEST, move |_, input: Json| {
        let n = runs.fetch_add(1, Ordering::SeqCst) + 1;
        let padding = "x".repeat(input.to_value()["padding"].as_u64().unwrap_or(0) as usize);
        let output = format!(
            "{{\"n\":{n},\"input\":{},\"padding\":\"{padding}\"}}",
            input.as_str()
        );
        async move { Ok(Reply::json(Json::parse(output).unwrap())) }
    });
    let engine = Engine::builder(Config {
        cache,
        ..Config::default()
    })
    .builtins(vec![pack])
    .memory(Memory {
        store: Arc::clone(&faulty) as _,
        keyring: Arc::new(keyring()),
        system: None,
    })
    .clock(clock)
    .build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    Ok((engine, faulty, counted))
}
