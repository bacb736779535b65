#![doc = include_str!("README.md")]

mod artifacts;
mod audit;
mod builder;
mod cache;
mod command;
mod config;
mod engine;
mod folder;
mod handler;
mod http;
mod importing;
mod janitor;
mod jobs;
mod layers;
mod mcp;
mod memory;
mod metrics;
mod pipeline;
mod registry;
mod scrub;
mod views;

pub use audit::{AuditPage, AuditRow, Finding};
pub use builder::{Builder, Memory};
pub use cache::explain::{Explanation, Nearest};
pub use cache::purge::{Purged, Selector};
pub use config::{ArtifactConfig, AuditConfig, CacheConfig, CommandConfig, Config, JobConfig};
pub use engine::Engine;
pub use jobs::{Job, JobBook, JobError, JobEvent, JobId, JobPage, JobProgress, JobQuery, JobState};
pub use mcp::{McpReach, McpServer, McpStatus, McpValue};
pub use memory::MemoryControl;
pub use registry::{CacheSummary, PackInfo, Source};
pub use scrub::looks_like_token;
pub use views::{CommonFinding, Defaults, PackUse, RecentCall, defaults, store_error};
