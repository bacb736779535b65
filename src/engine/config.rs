//! What an operator can set about the engine. Every field has a default; unknown keys are refused.

use std::collections::BTreeMap;
use std::time::Duration;

use helmdeck_core::duration::{size, text};
use helmdeck_core::manifest::Scope;
use serde::{Deserialize, Serialize};

use crate::sessions::SessionConfig;

/// The engine's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The read-through cache; of no effect without a memory key.
    pub cache: CacheConfig,
    /// The audit rows; of no effect without a memory key.
    pub audit: AuditConfig,
    /// Files that packs write.
    pub artifacts: ArtifactConfig,
    /// Packs that run a program.
    pub commands: CommandConfig,
    /// Sessions, and what commands in them may take.
    pub sessions: SessionConfig,
    /// Calls that go on without whoever asked for them.
    pub jobs: JobConfig,
}

/// The cache's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// The size of the hot tier in memory: answers, their keys and a tenth for the calls that they answer. Default 64 MiB; 0 turns the tier off.
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
    /// How long a pack with `single_flight = "cluster"` waits for a run of another process before it runs too; never longer
    /// than the pack's own timeout. Default 30 s.
    #[serde(with = "text")]
    pub cluster_wait: Duration,
    /// How often the store is asked whether another process deleted something, if it does not tell by itself. Default 100 ms.
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

/// The audit's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// How long a row is kept. Default 30 d.
    #[serde(with = "text")]
    pub retention: Duration,
    /// How many rows may wait to be written; more are dropped and counted. Default 4096.
    pub queue: usize,
    /// The longest that a row waits for others to be written with. Default 100 ms.
    #[serde(with = "text")]
    pub linger: Duration,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { retention: Duration::from_secs(30 * 86_400), queue: 4096, linger: Duration::from_millis(100) }
    }
}

/// The settings of artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactConfig {
    /// Where files are kept: an S3-compatible store ([`crate::S3Location`]). Empty, the default, is a local folder.
    pub url: String,
    /// The largest file, in bytes. Default 100 MiB.
    #[serde(with = "size")]
    pub max_bytes: u64,
    /// How long a file is kept unless its pack says otherwise. Default 7 d.
    #[serde(with = "text")]
    pub retention: Duration,
    /// How often files that have ended are swept. Default 1 h.
    #[serde(with = "text")]
    pub sweep_interval: Duration,
}

impl Default for ArtifactConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            max_bytes: 100 << 20,
            retention: Duration::from_secs(7 * 86_400),
            sweep_interval: Duration::from_secs(3600),
        }
    }
}

/// The settings of packs that run a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandConfig {
    /// The most that a program may write to stdout. Default 16 MiB.
    #[serde(with = "size")]
    pub max_output_bytes: u64,
    /// The search path that programs get, and that names without a `/` are looked up in. Default the usual system folders.
    pub path: String,
}

impl Default for CommandConfig {
    fn default() -> Self {
        Self {
            max_output_bytes: 16 << 20,
            path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        }
    }
}

/// The settings of jobs. A number of 0 counts as 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobConfig {
    /// How many run at once. Default 4.
    pub concurrency: usize,
    /// How many of one caller run at once. Default 2.
    pub per_caller: usize,
    /// How many may wait, of all callers; more are answered `overloaded`. Default 1000.
    pub queue: usize,
    /// How many of one caller are kept. The oldest that have ended make room; if none has, a new one is answered `overloaded`.
    /// Default 200.
    pub kept_per_caller: u64,
    /// How long a job and its result are kept after its end. Default 24 h.
    #[serde(with = "text")]
    pub retention: Duration,
    /// The largest result that is kept; of a larger one only the artifacts are. Default 4 MiB.
    #[serde(with = "size")]
    pub max_result_bytes: u64,
    /// How much all results take that are kept in memory, because there is no memory key; the oldest go first. Default 64 MiB.
    #[serde(with = "size")]
    pub memory_bytes: u64,
}

impl Default for JobConfig {
    fn default() -> Self {
        Self {
            concurrency: 4,
            per_caller: 2,
            queue: 1000,
            kept_per_caller: 200,
            retention: Duration::from_secs(86_400),
            max_result_bytes: 4 << 20,
            memory_bytes: 64 << 20,
        }
    }
}
