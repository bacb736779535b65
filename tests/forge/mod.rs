//! The memory of a project, from outside.

mod mcp;
mod nats_events;
mod nats_link;
