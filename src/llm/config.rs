//! Settings of the client for models. Every field has a default; unknown keys are refused.

use std::collections::BTreeMap;
use std::time::Duration;

use helmdeck_core::duration::{size, text};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::answer::Usage;

/// The settings of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Base URL of the operator's endpoint, such as `https://api.openai.com/v1`. Default: empty,
    /// none.
    ///
    /// `/chat/completions` is added to its path. Its host and port are always reachable.
    pub endpoint: String,
    /// The default model, for calls that name none. Default: empty, none.
    pub model: String,
    /// The models that a call may ask for, by their exact names. Default: empty, any.
    pub models: Vec<String>,
    /// Timeout of one answer in all. Default 5 min.
    #[serde(with = "text")]
    pub timeout: Duration,
    /// Timeout for silence of the endpoint, also before its answer. Default 2 min.
    #[serde(with = "text")]
    pub idle_timeout: Duration,
    /// The largest answer. Default 1 MiB.
    #[serde(with = "size")]
    pub max_response_bytes: u64,
    /// Maximum repeats of a request that was limited, failed or could not be sent. Default 4.
    ///
    /// A request whose answer got lost is repeated once at most.
    pub max_repeats: u32,
    /// The wait before the first repetition, doubled for each one after it. Default 1 s.
    #[serde(with = "text")]
    pub retry_wait: Duration,
    /// The longest wait that an endpoint may ask for before a repetition. Default 1 min.
    ///
    /// A longer one ends the request.
    #[serde(with = "text")]
    pub max_retry_wait: Duration,
    /// Prices of models, by name. Default: none.
    pub prices: BTreeMap<String, Price>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            model: String::new(),
            models: Vec::new(),
            timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(120),
            max_response_bytes: 1 << 20,
            max_repeats: 4,
            retry_wait: Duration::from_secs(1),
            max_retry_wait: Duration::from_secs(60),
            prices: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// A message that names the setting.
    pub fn validate(&self) -> Result<(), String> {
        self.base_url()?;
        for (name, duration) in [
            ("timeout", self.timeout),
            ("idle_timeout", self.idle_timeout),
        ] {
            if duration.is_zero() {
                return Err(format!("llm.{name} is 0; no model answers that fast"));
            }
        }
        if self.max_response_bytes == 0 {
            return Err("llm.max_response_bytes is 0; no answer would fit".to_owned());
        }
        if !self.model.is_empty() && !self.allows(&self.model) {
            return Err(format!(
                "llm.model {:?} is not among llm.models",
                self.model
            ));
        }
        match self.prices.iter().find(|(_, price)| !price.is_sensible()) {
            Some((model, _)) => Err(format!(
                "llm.prices.\"{model}\" must not be negative or infinite"
            )),
            None => Ok(()),
        }
    }

    /// Returns whether a model may be asked.
    pub(crate) fn allows(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|allowed| allowed == model)
    }

    /// Returns the operator's endpoint, `None` if it is not set.
    ///
    /// # Errors
    /// A message that says what it must be.
    pub(crate) fn base_url(&self) -> Result<Option<Url>, String> {
        if self.endpoint.is_empty() {
            return Ok(None);
        }
        crate::endpoint::parse(&self.endpoint)
            .map(Some)
            .map_err(|message| format!("llm.endpoint {message}"))
    }
}

/// Price of a model, in USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens of the prompt.
    pub input: f64,
    /// Tokens of the answer.
    pub output: f64,
    /// Price of prompt tokens from the endpoint's cache. Default: as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
}

impl Price {
    fn is_sensible(&self) -> bool {
        [Some(self.input), Some(self.output), self.cached]
            .into_iter()
            .flatten()
            .all(|usd| usd.is_finite() && usd >= 0.0)
    }

    /// Returns what these tokens cost, in USD.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> f64 {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let fresh = usage.prompt_tokens - cached;
        let total = fresh as f64 * self.input
            + cached as f64 * self.cached.unwrap_or(self.input)
            + usage.completion_tokens as f64 * self.output;
        total / 1e6
    }
}
