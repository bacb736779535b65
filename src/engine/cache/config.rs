//! Settings of the read-through cache.

use std::collections::BTreeMap;
use std::time::Duration;

use helmdeck_core::duration::{size, text};
use helmdeck_core::manifest::Scope;
use serde::{Deserialize, Serialize};

/// Settings of the read-through cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// The size of the hot tier in memory: answers, their keys and a tenth for the calls that they answer. Default 64
    /// MiB; 0 turns the tier off.
    #[serde(with = "size")]
    pub hot_bytes: u64,
    /// How long a read of the store may take before the handler runs instead. Default 50 ms.
    #[serde(with = "text")]
    pub read_budget: Duration,
    /// How long a write of the store may take before it counts as failed. Default 5 s.
    #[serde(with = "text")]
    pub write_budget: Duration,
    /// How many writes may wait behind responses; more are dropped and counted. Default 1024.
    pub write_queue: usize,
    /// How many bytes may wait behind responses; more are dropped and counted. Default 64 MiB.
    #[serde(with = "size")]
    pub write_queue_bytes: u64,
    /// How many failures of the store in a row open the breaker. Default 5.
    pub breaker_failures: u32,
    /// How long the breaker stays open before one call probes the store. Default 5 s.
    #[serde(with = "text")]
    pub breaker_open_for: Duration,
    /// How long a pack with `single_flight = "cluster"` waits for a run of another process before it runs too; never
    /// longer than the pack's own timeout. Default 30 s.
    #[serde(with = "text")]
    pub cluster_wait: Duration,
    /// How often the store is asked whether another process deleted something, if it does not tell by itself. Default
    /// 100 ms.
    #[serde(with = "text")]
    pub watch_interval: Duration,
    /// How often the clear counters are written to the system database. Default 5 s.
    #[serde(with = "text")]
    pub counters_interval: Duration,
    /// Directives that callers may not use, per scope: `{ shared = ["bypass", "refresh"] }`. Default none.
    pub forbid_directives: BTreeMap<Scope, Vec<String>>,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            hot_bytes: 64 << 20,
            read_budget: Duration::from_millis(50),
            write_budget: Duration::from_secs(5),
            write_queue: 1024,
            write_queue_bytes: 64 << 20,
            breaker_failures: 5,
            breaker_open_for: Duration::from_secs(5),
            cluster_wait: Duration::from_secs(30),
            watch_interval: Duration::from_millis(100),
            counters_interval: Duration::from_secs(5),
            forbid_directives: BTreeMap::new(),
        }
    }
}
