#![doc = include_str!("README.md")]

pub mod counters;
mod database;
pub mod forget;
pub mod idempotency;
pub mod jobs;
pub mod statistics;
mod sweep;
pub mod tokens;
pub mod vault;

pub use counters::Counter;
pub use database::System;
pub use idempotency::Begun;
