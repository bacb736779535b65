//! Read-through cache, used by the layers `recall`, `cache` and `invalidate`.
//!
//! It exists only when the operator opened gate 1; a pack gets a handle on it only when its manifest opened gate 2.

pub(crate) mod answer;
mod breaker;
pub(crate) mod cluster_lock;
pub(crate) mod counters;
pub(crate) mod explain;
pub(crate) mod flight;
pub(crate) mod hub;
pub(crate) mod invalidating_store;
mod invalidation;
pub(crate) mod key;
pub(crate) mod pack;
pub(crate) mod purge;
pub(crate) mod tags;
pub(crate) mod writer;
