//! Settings of conversations. Every field has a default; unknown keys are refused.

use std::time::Duration;

use helmdeck_core::duration::{size, text};
use serde::{Deserialize, Serialize};

/// Strategy: how turns become a context when they exceed the budget.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case", try_from = "String")]
#[strum(serialize_all = "snake_case")]
pub enum Strategy {
    /// No turn is stored.
    None,
    /// The newest turns that fit the budget are shown; older ones stay stored.
    #[default]
    Truncation,
    /// The newest turns are shown after a summary of the older ones.
    RollingSummary,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 3] = [Self::None, Self::RollingSummary, Self::Truncation];

    /// Returns the name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Parses a name; the empty text means `none`, as in the original.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn parse(name: &str) -> Result<Self, String> {
        if name.is_empty() {
            return Ok(Self::None);
        }
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::as_str).join(", ");
                format!(
                    "there is no strategy \"{}\"; there are {known}",
                    name.escape_debug()
                )
            })
    }
}

impl TryFrom<String> for Strategy {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::parse(&name)
    }
}

/// Policy for a turn that exceeds the whole budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOversize {
    /// It is stored and shown whole, and the context says that it is over the budget.
    #[default]
    Keep,
    /// It is refused.
    Refuse,
}

/// Way of counting tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenCounter {
    /// An estimate by characters: see [`crate::tokens`].
    #[default]
    Chars,
    /// The tokenizer of GPT-4 and GPT-3.5.
    Cl100kBase,
    /// The tokenizer of GPT-4o and later.
    O200kBase,
}

/// Settings of the conversation memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The strategy. Default `truncation`.
    pub strategy: Strategy,
    /// Maximum tokens of a context as it is rendered: goal, summary, turns, fences. 0 = unbounded.
    /// Default 8000.
    pub budget_tokens: u64,
    /// Number of newest turns that `rolling_summary` keeps out of the summary. At least 1. Default
    /// 4.
    pub recent_turns: usize,
    /// Policy for a turn that exceeds the budget. Default `keep`.
    pub on_oversize: OnOversize,
    /// Way of counting tokens. Default `chars`.
    pub tokens: TokenCounter,
    /// Maximum bytes of a stored turn. Default 256 KiB.
    #[serde(with = "size")]
    pub max_turn_bytes: u64,
    /// Lifetime of a conversation after its last turn. 0 = unlimited. Default 90 d.
    #[serde(with = "text")]
    pub ttl: Duration,
    /// Maximum stored turns of a conversation, summarised or not; the oldest go first. Default
    /// 10,000.
    pub max_turns: u64,
    /// Maximum bytes of the stored turns of a conversation; the oldest go first. Default 64 MiB.
    #[serde(with = "size")]
    pub max_bytes: u64,
    /// Interval of the sweep, which finds expired conversations and waiting turns. Default 1 min.
    #[serde(with = "text")]
    pub sweep_interval: Duration,
    /// Number of waiting batches above which a warning is logged. Default 16.
    ///
    /// They are still summarised, oldest first; none is dropped.
    pub recovery_backlog_max: u64,
    /// Memory of the hot tier. Default 32 MiB.
    #[serde(with = "size")]
    pub hot_bytes: u64,
    /// How long a cached copy is trusted without asking the store for writes of other processes.
    ///
    /// 0 = always ask. Default 250 ms. A store that replicas share (PostgreSQL) is always asked.
    #[serde(with = "text")]
    pub hot_for: Duration,
    /// The summarizer of `rolling_summary`.
    pub summarizer: SummarizerConfig,
}

/// Settings of the summarizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SummarizerConfig {
    /// Base URL of an OpenAI-compatible endpoint, like `https://api.openai.com/v1`.
    ///
    /// Default: empty, none.
    pub endpoint: String,
    /// The model. Default: empty, none.
    pub model: String,
    /// Name of the endpoint's credential. Default: empty, none.
    pub credential: String,
    /// Maximum tokens of a summary; never more than half of the budget. Default 1024.
    pub summary_tokens: u64,
    /// Maximum turns of one request. Default 16.
    pub batch_turns: usize,
    /// Maximum tokens of the turns of one request. Default 6000.
    pub batch_tokens: u64,
    /// Timeout of a request. Default 1 min.
    #[serde(with = "text")]
    pub timeout: Duration,
    /// Maximum concurrent requests, over all conversations. Default 2.
    pub concurrency: usize,
    /// Consecutive failures after which a conversation is degraded. Default 3.
    pub max_attempts: u32,
    /// The wait after the first failure, doubled for each one after it, with jitter. Default 1 s.
    #[serde(with = "text")]
    pub retry_wait: Duration,
    /// Maximum wait between two attempts. Default 5 min.
    #[serde(with = "text")]
    pub max_retry_wait: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            budget_tokens: 8000,
            recent_turns: 4,
            on_oversize: OnOversize::default(),
            tokens: TokenCounter::default(),
            max_turn_bytes: 256 << 10,
            ttl: Duration::from_secs(90 * 86_400),
            max_turns: 10_000,
            max_bytes: 64 << 20,
            sweep_interval: Duration::from_secs(60),
            recovery_backlog_max: 16,
            hot_bytes: 32 << 20,
            hot_for: Duration::from_millis(250),
            summarizer: SummarizerConfig::default(),
        }
    }
}

impl Default for SummarizerConfig {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            model: String::new(),
            credential: String::new(),
            summary_tokens: 1024,
            batch_turns: 16,
            batch_tokens: 6000,
            timeout: Duration::from_secs(60),
            concurrency: 2,
            max_attempts: 3,
            retry_wait: Duration::from_secs(1),
            max_retry_wait: Duration::from_secs(300),
        }
    }
}

impl Config {
    /// Checks the settings. Whether a summarizer is configured is checked when the memory opens.
    ///
    /// # Errors
    /// A message that names the setting.
    pub fn validate(&self) -> Result<(), String> {
        let positive = [
            ("recent_turns", self.recent_turns as u64),
            ("max_turn_bytes", self.max_turn_bytes),
            ("max_turns", self.max_turns),
            ("max_bytes", self.max_bytes),
            ("recovery_backlog_max", self.recovery_backlog_max),
            ("summarizer.summary_tokens", self.summarizer.summary_tokens),
            ("summarizer.batch_turns", self.summarizer.batch_turns as u64),
            ("summarizer.batch_tokens", self.summarizer.batch_tokens),
            ("summarizer.concurrency", self.summarizer.concurrency as u64),
            (
                "summarizer.max_attempts",
                u64::from(self.summarizer.max_attempts),
            ),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, number)| *number == 0) {
            return Err(format!("conversation.{name} is 0; give at least 1"));
        }
        for (name, duration) in [
            ("sweep_interval", self.sweep_interval),
            ("summarizer.timeout", self.summarizer.timeout),
            ("summarizer.retry_wait", self.summarizer.retry_wait),
        ] {
            if duration.is_zero() {
                return Err(format!("conversation.{name} is 0; give some time"));
            }
        }
        if !cfg!(feature = "tiktoken") && self.tokens != TokenCounter::Chars {
            return Err(
                "conversation.tokens: this program was built without tokenizers; only \"chars\" is there".to_owned()
            );
        }
        Ok(())
    }

    /// Returns the maximum tokens of a summary.
    #[must_use]
    pub const fn summary_tokens(&self) -> u64 {
        let half = self.budget_tokens / 2;
        let most = self.summarizer.summary_tokens;
        if self.budget_tokens == 0 || most < half {
            most
        } else if half == 0 {
            1
        } else {
            half
        }
    }
}
