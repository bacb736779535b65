#![doc = include_str!("README.md")]

mod bus;
mod event;
#[cfg(feature = "nats")]
pub mod nats;
mod sink;

pub use bus::{Bus, Lagged, Subscription};
pub use event::{Event, EventKind, Who};
pub use sink::{Message, Receipt, Sink, SinkError, Stored};
