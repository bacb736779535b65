//! Keys and stores.

use std::sync::Arc;

use helmdeck_core::Clock;
use helmdeck_core::waiting::STUCK;
use helmdeck_engine::{CacheConfig, Config as EngineConfig, Memory};
use helmdeck_memory::{Config, KeyRing, Store};

/// A memory key.
pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// Another memory key.
pub const OTHER_KEY: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00112233445566778899aabbccddeeff";

/// Returns a key ring with [`KEY`].
#[must_use]
#[allow(clippy::expect_used, reason = "the key is well-formed")]
pub fn keyring() -> KeyRing {
    KeyRing::parse(("KEY", KEY), None).expect("a key ring")
}

/// Returns settings of an engine whose store has all the time that it needs: for tests that are not
/// about its budgets.
#[must_use]
pub fn patient() -> EngineConfig {
    let cache = CacheConfig {
        read_budget: STUCK,
        write_budget: STUCK,
        ..CacheConfig::default()
    };
    EngineConfig {
        cache,
        ..EngineConfig::default()
    }
}

/// Opens a sealed store in memory.
#[allow(clippy::expect_used, reason = "a store in memory always opens")]
pub async fn sealed_memory(clock: Arc<dyn Clock>) -> Arc<dyn Store> {
    helmdeck_memory::open("memory:", keyring(), Config::default(), clock)
        .await
        .expect("a store")
}

/// Opens gate 1 with a store in memory.
pub async fn memory(clock: Arc<dyn Clock>) -> Memory {
    Memory {
        store: sealed_memory(clock).await,
        keyring: Arc::new(keyring()),
        system: None,
    }
}
