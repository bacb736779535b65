//! Settings of `swe.solve`. Every field has a default; unknown keys are refused.

use std::time::Duration;

use helmdeck_core::duration::{size, text};
use serde::{Deserialize, Serialize};

/// The settings of `swe.solve`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Timeout of a model's command, unless the call sets one. Default 2 min.
    #[serde(with = "text")]
    pub command_timeout: Duration,
    /// Timeout of the tests. Default 10 min.
    #[serde(with = "text")]
    pub test_timeout: Duration,
    /// Maximum bytes shown of a command's output. Default 16 KiB.
    #[serde(with = "size")]
    pub observation_bytes: u64,
    /// Maximum size of the conversation with a model, in bytes; above it old outputs are left out.
    ///
    /// About four bytes are a token. Default 400 KiB.
    #[serde(with = "size")]
    pub context_bytes: u64,
    /// Maximum answers per call, even if it requests more. Default 250.
    pub max_steps: u32,
    /// Maximum cost per call in USD, even if it requests more. Default 0.
    ///
    /// 0 = only the call's own limit.
    pub max_cost: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            command_timeout: Duration::from_secs(120),
            test_timeout: Duration::from_secs(600),
            observation_bytes: 16 << 10,
            context_bytes: 400 << 10,
            max_steps: 250,
            max_cost: 0.0,
        }
    }
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// A message that names the setting.
    pub fn validate(&self) -> Result<(), String> {
        for (name, duration) in [
            ("command_timeout", self.command_timeout),
            ("test_timeout", self.test_timeout),
        ] {
            if duration.is_zero() {
                return Err(format!("swe.{name} is 0; no command is that fast"));
            }
        }
        if !(256..=1 << 20).contains(&self.observation_bytes) {
            return Err("swe.observation_bytes must be 256 to 1MiB".to_owned());
        }
        if self.context_bytes < 8 << 10 {
            return Err(
                "swe.context_bytes is under 8KiB; the rules and the task alone take about that"
                    .to_owned(),
            );
        }
        if self.max_steps == 0 {
            return Err("swe.max_steps is 0; no model could do anything".to_owned());
        }
        if !self.max_cost.is_finite() || self.max_cost < 0.0 {
            return Err("swe.max_cost must not be negative or infinite".to_owned());
        }
        Ok(())
    }

    /// Returns the maximum cost in USD of a call with this limit; `None` for no limit.
    pub(super) fn cost(&self, asked: Option<f64>) -> Option<f64> {
        let most = Some(self.max_cost).filter(|most| *most > 0.0);
        match (asked, most) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }
}
