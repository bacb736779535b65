//! Tests: the conformance suite on every driver, and tests that need a real file.

mod audit;
mod conformance;
mod crash;
mod eviction;
mod first_format;
mod flips;
mod floors;
mod janitor;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_changes;
#[cfg(feature = "postgres")]
mod postgres_new_rows;
#[cfg(feature = "postgres")]
mod postgres_plans;
#[cfg(feature = "postgres")]
mod postgres_scale;
#[cfg(feature = "postgres")]
mod postgres_trouble;
mod replaced;
mod rotate;
mod tampering;
mod trouble;
mod upgrade;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use helmdeck_core::SystemClock;

use crate::{Config, Entry, KeyRing, Kind, MemoryKey, Namespace, Put, Result, Store, open};

const KEY_A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const KEY_B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn ring(current: &str, previous: Option<&str>) -> KeyRing {
    KeyRing::parse(("K", current), previous.map(|text| ("P", text))).unwrap()
}

fn id(key: &str) -> String {
    MemoryKey::parse("K", key).unwrap().id().to_owned()
}

fn alice() -> Namespace {
    Namespace::new("t", "alice", None)
}

fn put(key: &str, value: &str) -> Put {
    Put::new(alice(), Kind::Cache, key, value.to_owned())
}

async fn get(store: &Arc<dyn Store>, key: &str) -> Result<Option<Entry>> {
    store.get(&alice(), Kind::Cache, key).await
}

async fn open_with(path: &Path, ring: KeyRing, config: Config) -> Result<Arc<dyn Store>> {
    open(
        &format!("sqlite:{}", path.display()),
        ring,
        config,
        Arc::new(SystemClock::default()),
    )
    .await
}

async fn open_at(path: &Path) -> Result<Arc<dyn Store>> {
    open_with(path, ring(KEY_A, None), Config::default()).await
}

/// Store in a temporary folder, with the path of its file.
async fn fresh() -> (tempfile::TempDir, PathBuf, Arc<dyn Store>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data").join("memory.db");
    let store = open_at(&path).await.unwrap();
    (folder, path, store)
}

/// Runs SQL on the file, as an attacker would.
fn tamper(path: &Path, sql: &str) -> usize {
    let connection = rusqlite::Connection::open(path).unwrap();
    let changed = connection.execute(sql, []).unwrap();
    assert!(changed > 0, "{sql} changed nothing");
    changed
}
