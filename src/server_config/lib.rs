#![doc = include_str!("README.md")]

mod auth;
mod mcp;
mod names;
mod server;

pub use auth::{AuthConfig, KeySource, MIN_SECRET_BYTES, is_safe};
pub use mcp::{McpConfig, SessionMode};
pub use names::{host_name, is_local_name, is_loopback, network, origin_authority};
pub use server::{ServerConfig, check_listen};
