//! The way to a NATS server: messages are published to a `JetStream` stream, and read from it again.
//!
//! Every call is blocking and has a deadline. The connection lives on a thread of its own, and comes back by itself; a server that
//! is away is known to be so, and costs nobody the deadline.

mod later;
mod link;
mod options;
mod read;
mod stream;

pub use later::{Later, Shared};
pub use link::Nats;
pub use options::{NatsOptions, STREAM};
