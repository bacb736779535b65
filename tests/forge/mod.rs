//! The memory of a project, from outside.

mod answers;
mod day;
mod docs;
#[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
mod fixture;
mod hooks;
mod hostile;
mod mcp;
mod nats;
mod nats_events;
mod nats_keys;
mod nats_link;
mod nexts;
mod paused;
mod proof;
mod trackers;
mod transports;
mod watch;
mod week;
mod words;
