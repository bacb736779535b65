#![doc = include_str!("README.md")]

#[cfg(test)]
mod conformance;
pub mod counters;
mod driver;
mod drivers;
mod ends;
pub mod forget;
pub mod idempotency;
pub mod jobs;
pub mod journal;
pub mod queue;
pub mod replica;
pub mod schedules;
pub mod statistics;
mod sweep;
mod system;
pub mod tokens;
pub mod transfer;
pub mod vault;

pub use counters::Counter;
pub use idempotency::{Begun, Fence, KeptEnd, KeyEnd, KeyRequest};
pub use journal::{Journal, JournalEntry};
pub use replica::Replica;
pub use system::System;
