//! The MCP transport: packs as tools, with resources about them, over streamable HTTP and over stdio.
//!
//! rmcp implements the protocol. Plain calls of packs bypass it: `direct` answers them with what rmcp would answer, so
//! that the output of a pack is never parsed again.

mod answer;
mod config;
mod direct;
mod extra;
mod handler;
mod http;
mod lists;
mod message;
mod names;
mod progress;
mod prompts;
mod resources;
mod running;
mod sessions;
mod state;
mod stdio;
mod stream;
mod table;
mod tasks;
mod uri;
mod watch;
mod wish;

#[cfg(test)]
mod tests;

pub use config::McpConfig;
pub use extra::Extra;
pub(crate) use http::Mcp;
pub(crate) use state::Validity;
pub use state::{Absolute, LocalClient};
pub use stdio::Stdio;
pub(crate) use uri::encode;
