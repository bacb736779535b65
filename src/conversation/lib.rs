#![doc = include_str!("README.md")]

pub mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod conversations;
mod emit;
pub mod error;
pub mod health;
mod hot;
pub mod identity;
pub mod item;
mod memory;
pub mod metrics;
pub mod patch;
pub mod prompt;
mod rows;
mod shared_state;
pub mod snapshot;
mod strategies;
pub mod summarizer;
#[cfg(test)]
mod tests;
pub mod tokens;
pub mod turn;
pub mod wire;
mod worker;

pub use config::{Config, OnOversize, Strategy, SummarizerConfig, TokenCounter};
pub use conversations::Conversations;
pub use error::{ConversationError, Result};
pub use health::Health;
pub use identity::Identity;
pub use item::{
    Added, Deleted, Folding, Item, ItemDetail, ItemFilter, ItemId, ItemPage, Session, SessionFilter, SessionPage, Trace,
};
pub use memory::{ConversationMemory, Dependencies};
pub use metrics::Metrics;
pub use patch::{LlmContextPatch, RecentTurn};
pub use snapshot::{Record, Snapshot};
pub use summarizer::{SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer};
pub use turn::{ConversationTurn, NewDigest, NewTurn, TrajectoryDigest, TurnTime};
