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
    /// Memory limit of the hot tier: answers, their keys, and a tenth for aliases.
    ///
    /// Default 64 MiB; 0 turns the tier off. An answer of more than 7 MiB may be kept in the store
    /// only.
    #[serde(with = "size")]
    pub hot_bytes: u64,
    /// Least time budget of a read of the store; after it the handler runs. Default 50 ms.
    ///
    /// A dear answer gets more: 5 % of the time that its handler takes, at most 2 s.
    #[serde(with = "text")]
    pub read_budget: Duration,
    /// Time budget of a write of the store; after it the write has failed. Default 5 s.
    ///
    /// Who purges waits for the store as long, and so does who reads the audit for queued rows.
    #[serde(with = "text")]
    pub write_budget: Duration,
    /// Limit of queued writes. Of more, the cheapest are dropped and counted. Default 1024.
    pub write_queue: usize,
    /// Limit of queued bytes. Of more, the cheapest writes are dropped and counted. Default 64 MiB.
    #[serde(with = "size")]
    pub write_queue_bytes: u64,
    /// Consecutive failures of the store that open the breaker. Default 5.
    pub breaker_failures: u32,
    /// How long the breaker stays open before one call probes the store. Default 5 s.
    #[serde(with = "text")]
    pub breaker_open_for: Duration,
    /// How long a pack with `single_flight = "cluster"` waits for a run of another process.
    ///
    /// After that it runs too. Never longer than the pack's own timeout. Default 30 s.
    #[serde(with = "text")]
    pub cluster_wait: Duration,
    /// Interval of polls for deletes by other processes. Default 100 ms.
    ///
    /// Used if the store sends no notifications.
    #[serde(with = "text")]
    pub watch_interval: Duration,
    /// Interval of writes of the counters to the system database. Default 5 s.
    #[serde(with = "text")]
    pub counters_interval: Duration,
    /// What a pack with `invalidates` does while the store cannot be reached. Default `run`.
    pub on_store_lost: OnStoreLost,
    /// Directives that callers may not use, per scope: `{ shared = ["bypass", "refresh"] }`.
    /// Default none.
    pub forbid_directives: BTreeMap<Scope, Vec<String>>,
    /// Age from which callers may have a fresh answer made anew, per scope: `{ shared = "10s" }`.
    ///
    /// A younger one is served, whatever the caller asks for. Administrators may always. Default:
    /// for `shared` none while it is fresh, for other scopes every one.
    pub min_age: BTreeMap<Scope, MinAge>,
}

/// What a pack whose calls invalidate answers does while the store cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreLost {
    /// It runs. What it invalidates is purged once the store is back, and the outcome says that
    /// this is pending.
    Run,
    /// It is refused with `overloaded` before it runs.
    RefuseWrites,
}

/// Age of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MinAge(#[serde(with = "text")] pub Duration);

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
            on_store_lost: OnStoreLost::Run,
            forbid_directives: BTreeMap::new(),
            min_age: BTreeMap::new(),
        }
    }
}
