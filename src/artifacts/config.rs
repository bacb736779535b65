//! Settings of artifacts.

use std::time::Duration;

use helmdeck_core::duration::{size, text};
use serde::{Deserialize, Serialize};

/// Settings of artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactConfig {
    /// URL of an S3-compatible artifact store ([`S3Location`](super::S3Location)).
    ///
    /// If it is empty, which is the default, artifacts are kept in a local folder.
    pub url: String,
    /// Size limit of one artifact. Default 100 MiB.
    #[serde(with = "size")]
    pub max_bytes: u64,
    /// How long an artifact is kept if its pack sets nothing else. Default 7 d.
    #[serde(with = "text")]
    pub retention: Duration,
    /// Interval between sweeps of expired artifacts. Default 1 h.
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
