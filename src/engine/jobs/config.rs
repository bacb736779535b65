//! Settings of jobs.

use std::time::Duration;

use helmdeck_core::duration::{size, text};
use serde::{Deserialize, Serialize};

/// Settings of jobs. A number of 0 counts as 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobConfig {
    /// How many run at once. Default 4.
    pub concurrency: usize,
    /// How many of one caller run at once. Default 2.
    pub per_caller: usize,
    /// How many may wait, of all callers; more are answered `overloaded`. Default 1000.
    pub queue: usize,
    /// How many of one caller are kept. The oldest that have ended make room; if none has, a new one is answered
    /// `overloaded`. Default 200.
    pub kept_per_caller: u64,
    /// How long a job and its result are kept after its end. Default 24 h.
    #[serde(with = "text")]
    pub retention: Duration,
    /// The largest result that is kept; of a larger one only the artifacts are. Default 4 MiB.
    #[serde(with = "size")]
    pub max_result_bytes: u64,
    /// How much all results take that are kept in memory, because there is no memory key; the oldest go first. Default
    /// 64 MiB.
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
