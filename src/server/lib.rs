#![doc = include_str!("README.md")]

mod access;
mod app;
mod body;
mod correlate;
mod docs;
mod draining;
mod entry;
mod guard;
mod headers;
mod idempotency;
mod limits;
pub mod mcp;
mod metrics;
mod openapi;
mod operator;
mod peers;
mod position;
mod problem;
mod rest;
mod serve;
mod session_header;
#[cfg(feature = "ui")]
mod ui;
mod validity;

#[cfg(test)]
mod fixture;

pub use access::Auth;
pub use helmdeck_server_config::{AuthConfig, ServerConfig};
pub use limits::Replicas;
pub use metrics::metrics;
pub use operator::Operator;
pub use rest::project::ProjectSettings;
pub use rest::webhook::{WebhookAnswer, WebhookReceiver};
pub use serve::{Reload, Server, router, serve};
