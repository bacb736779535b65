//! Drivers of the system database. One conformance suite runs on each of them.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod sqlite;
