//! The read-through cache: what stands behind the layers `recall` and `cache`, and behind `invalidate`.
//!
//! It exists only when the operator opened gate 1; a pack gets a handle on it only when its manifest opened gate 2.

pub(crate) mod answer;
mod breaker;
pub(crate) mod cluster;
pub(crate) mod counters;
pub(crate) mod explain;
pub(crate) mod flight;
pub(crate) mod hub;
pub(crate) mod key;
mod others;
pub(crate) mod own;
pub(crate) mod pack;
pub(crate) mod purge;
pub(crate) mod tags;
pub(crate) mod writer;
