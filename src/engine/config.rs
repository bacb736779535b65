//! Settings of the engine: those of each part under one name.
//!
//! Every field has a default; unknown keys are refused.

use serde::{Deserialize, Serialize};

use crate::audit::AuditConfig;
use crate::cache::config::CacheConfig;
use crate::command::CommandConfig;
use crate::jobs::JobConfig;
use crate::prices::Prices;
use helmdeck_artifacts::ArtifactConfig;
use helmdeck_sandbox::SessionConfig;

/// Settings of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Read-through cache. Has no effect without a memory key.
    pub cache: CacheConfig,
    /// Audit rows. Has no effect without a memory key.
    pub audit: AuditConfig,
    /// Artifacts: files that packs write.
    pub artifacts: ArtifactConfig,
    /// Packs that run a program.
    pub commands: CommandConfig,
    /// Sessions, and the limits of commands in them.
    pub sessions: SessionConfig,
    /// Jobs: calls that continue without their caller.
    pub jobs: JobConfig,
    /// Prices of runs and requests, for what the cache saves.
    pub prices: Prices,
}
