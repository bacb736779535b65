//! The memory of a project, from outside.

mod docs;
mod ground;
mod mcp;
mod nats_events;
mod nats_link;
mod proof;
mod words;
