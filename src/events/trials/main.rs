//! The way to a NATS server, with a real one that is stopped, killed, frozen and started again.

#[path = "../../testkit/nats.rs"]
#[allow(dead_code, unreachable_pub, reason = "the fixture of the test kit, without everything else that is there")]
mod server;

mod nats;
