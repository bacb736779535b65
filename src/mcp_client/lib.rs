#![doc = include_str!("README.md")]

mod backoff;
mod client;
mod config;
mod connection;
mod failure;
mod handler;
mod lines;
mod listing;
mod metrics;
mod process;
mod remembered;
mod server;
mod servers;
mod sieve;
mod web;

pub use config::{McpReach, McpServer, McpValue};
pub use listing::Listing;
pub use metrics::McpMetrics;
pub use remembered::Remembered;
pub use server::{Changed, Discovery, Server, Surroundings};
pub use servers::{FIRST_ANSWER, Fitted, Imported, McpStatus, Servers};
