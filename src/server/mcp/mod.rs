//! The MCP transport: packs as tools, with resources about them, over streamable HTTP and over
//! stdio.
//!
//! rmcp implements the protocol. Calls of packs are run and written in `call`, so that an output is
//! never parsed again: plain ones bypass rmcp, all others are checked by it and handed back.

mod answer;
mod call;
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
mod session_seal;
mod sessions;
mod span;
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

pub use extra::Extra;
pub use helmdeck_server_config::McpConfig;
pub(crate) use http::Mcp;
pub(crate) use session_seal::SessionSeal;
pub(crate) use sessions::SealedSessions;
pub use state::{Absolute, LocalClient};
pub use stdio::Stdio;
pub(crate) use uri::encode;
