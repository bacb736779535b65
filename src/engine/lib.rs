#![doc = include_str!("README.md")]

mod audit;
mod builder;
mod cache;
mod call_runner;
mod command;
mod config;
mod durations;
mod election;
mod engine;
mod entry;
mod folder;
mod handler;
mod http;
mod janitor;
mod jobs;
mod layers;
mod memory;
mod metrics;
mod pipeline;
mod prices;
mod program;
mod registry;
mod statistics;
mod tail;
mod views;

pub use audit::{AuditConfig, AuditPage, AuditRow, Finding};
pub use builder::{Builder, Memory};
pub use cache::config::{CacheConfig, MinAge, OnStoreLost};
pub use cache::explain::{Explanation, Nearest};
pub use cache::purge::{Purged, Selector};
pub use cache::tags::stored_tag;
pub use command::CommandConfig;
pub use config::Config;
pub use engine::{Engine, EngineLoad, Found};
pub use helmdeck_artifacts::{
    ArtifactConfig, ArtifactPage, ListedArtifact, S3Credentials, S3Location, is_damaged,
};
pub use helmdeck_mcp_client::{McpReach, McpServer, McpStatus, McpValue};
pub use helmdeck_sandbox::{STAGE, SessionConfig, SessionInfo, SessionPlace, StageEnd, stage};
pub use jobs::{
    Job, JobBook, JobConfig, JobError, JobEvent, JobId, JobPage, JobProgress, JobQuery,
    JobSchedule, JobState,
};
pub use memory::MemoryControl;
pub use prices::{Price, Prices};
pub use registry::{PackInfo, PackSource, ScheduleSummary};
pub use statistics::{Numbers, Report, Statistics, StatisticsSlot, Window};
pub use tail::{CallRecord, Tail, Tailed};
pub use views::{CallFilter, CallPage, PastCall, store_error};

/// Test of `docs/embed.md`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embed.md")]
struct EmbedPage;
