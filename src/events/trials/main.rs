//! The way to a NATS server, with a real one that is stopped, killed, frozen and started again.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../testkit/nats.rs"]
#[allow(dead_code, unreachable_pub, reason = "the fixture of the test kit, without everything else that is there")]
mod server;

mod memory;
mod nats;
