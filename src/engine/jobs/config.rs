//! Settings of jobs.

use std::time::Duration;

use helmdeck_core::duration::{size, text};
use serde::{Deserialize, Serialize};

/// Settings of jobs. A number of 0 counts as 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobConfig {
    /// Limit of running jobs. Default 4.
    pub concurrency: usize,
    /// Limit of running jobs per caller. Default 2.
    pub per_caller: usize,
    /// Limit of waiting jobs of all callers. More are answered `overloaded`. Default 1000.
    pub queue: usize,
    /// Limit of kept jobs per caller. Default 200.
    ///
    /// The oldest ended job is dropped to make room; if none has ended, a new job is answered
    /// `overloaded`.
    pub kept_per_caller: u64,
    /// How long a job and its result are kept after its end. Default 24 h.
    #[serde(with = "text")]
    pub retention: Duration,
    /// Size limit of a kept result. Of a larger one only the artifacts are kept. Default 4 MiB.
    #[serde(with = "size")]
    pub max_result_bytes: u64,
    /// Size limit of all results kept in process memory. Default 64 MiB.
    ///
    /// Results are kept there without a memory key. The oldest are dropped first.
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
