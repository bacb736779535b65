//! NATS client: publishes messages to a `JetStream` stream, and reads them back.
//!
//! Every call blocks and has a deadline. The connection runs on its own thread and reconnects by
//! itself. While the server is down, calls fail at once instead of at their deadline.

mod later;
mod link;
mod options;
mod read;
mod stream;

pub use later::{Later, Shared};
pub use link::Nats;
pub use options::{NatsOptions, STREAM};
