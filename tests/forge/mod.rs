//! The memory of a project, from outside.

mod docs;
#[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
mod ground;
mod mcp;
mod nats_events;
mod nats_link;
mod proof;
mod words;
