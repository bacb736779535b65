#![doc = include_str!("README.md")]

pub mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod conversations;
pub mod error;
pub mod health;
mod hot_tier;
pub mod identity;
mod memory;
pub mod metrics;
pub mod patch;
pub mod render;
mod rows;
mod shared;
pub mod snapshot;
mod strategies;
pub mod summarizer;
#[cfg(test)]
mod tests;
pub mod tokens;
pub mod turn;
mod turn_id;
pub mod views;
pub mod wire;
mod worker;

pub use config::{Config, OnOversize, Strategy, SummarizerConfig, TokenCounter};
pub use conversations::Conversations;
pub use error::{ConversationError, Result};
pub use health::Health;
pub use identity::Identity;

pub use memory::{ConversationMemory, Dependencies};
pub use metrics::Metrics;
pub use patch::{LlmContextPatch, RecentTurn};
pub use render::{Format, Message, RenderedContext, Role};
pub use snapshot::{Record, Snapshot};
pub use summarizer::{SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer};
pub use turn::{ConversationTurn, NewDigest, NewTurn, TrajectoryDigest, TurnTime};
pub use turn_id::TurnId;
pub use views::{
    Added, ConversationFilter, ConversationInfo, ConversationPage, Deleted, Goal, SummaryStatus,
    Trace, TurnDetail, TurnFilter, TurnInfo, TurnPage,
};
