//! Tests of the engine's public API, with real stores and a manual clock.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests"
)]

mod artifact_places;
mod artifacts;
mod cache;
mod chains;
mod cluster;
mod commands;
mod credentials;
mod eviction;
mod facts;
mod faults;
mod files;
mod flights;
mod folder;
mod forget;
mod gates;
mod handles;
mod history;
mod http;
mod jobs;
mod journal;
mod key;
mod leaks;
mod mcp;
mod mcp_remembered;
mod mcp_secrets;
mod needs;
mod notes;
mod pipeline;
mod replicas;
mod schemas;
mod scopes;
mod shared;
mod sound_cache;
mod support;
mod sweeping;
mod trouble;
mod unread;
mod writes;
