//! The MCP transport: packs as tools, and what is known of them as resources, over streamable HTTP and over stdio.
//!
//! rmcp speaks the protocol. Calls of packs that are plainly in order do not pass through it: `direct`
//! answers them with what rmcp would answer, so that the output of a pack is never parsed on its way
//! out.

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
