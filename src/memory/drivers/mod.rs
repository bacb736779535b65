//! Storage drivers. One conformance suite runs on each of them, plain and sealed.

pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod sqlite;
