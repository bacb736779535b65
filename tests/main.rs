//! The one test binary of the whole product: end to end, and what no single crate can see.
//!
//! A file in this folder is a module here; `layering` fails if one is forgotten.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

mod archive;
mod artifacts;
mod attacks;
mod audit_chain;
mod auth;
mod balanced;
mod balanced_system;
mod browser;
mod cli;
mod completion;
mod conversation;
mod deploying;
mod descriptors;
mod docs;
mod first_use;
mod flights;
mod forge;
mod forget;
mod freshness;
mod fuzz;
mod gates;
mod github;
mod http_kind;
mod init;
mod invalidation;
mod isolation;
mod jobs;
mod layering;
mod limits;
mod mcp_clients;
mod mcp_conformance;
mod mcp_docs;
mod mcp_first_list;
mod mcp_process;
mod mcp_servers;
mod mcp_tasks;
mod metrics;
mod openapi;
mod outages;
mod packaging;
mod positions;
mod process;
mod replicas;
mod repo;
mod rotation;
mod sandbox;
mod seam;
mod secrets;
mod session_life;
mod sessions;
mod shared_jobs;
mod shared_system;
mod shell;
mod soak;
mod statements;
mod store_start;
mod store_trouble;
mod support;
mod swe;
mod tampering;
mod telemetry;
mod terminal;
mod two_processes;
mod vault;
mod vault_routes;
mod views;

#[path = "support/github.rs"]
#[expect(unreachable_pub, reason = "shared with the tests of the packs")]
mod stand_in;
