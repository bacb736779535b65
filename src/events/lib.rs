#![doc = include_str!("README.md")]

mod bus;
mod event;

pub use bus::{Bus, Lagged, Subscription};
pub use event::{Event, EventKind, Who};
