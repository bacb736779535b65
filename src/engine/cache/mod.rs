//! Read-through cache, used by the layers `recall`, `cache` and `invalidate`.
//!
//! It exists only when the operator opened gate 1; a pack gets a handle on it only when its
//! manifest opened gate 2.

pub(crate) mod answer;
pub(crate) mod backoff;
mod breaker;
pub(crate) mod cluster_lock;
pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod explain;
pub(crate) mod flight;
pub(crate) mod freshness;
pub(crate) mod hot;
pub(crate) mod hub;
pub(crate) mod invalidating_store;
mod invalidation;
mod keep;
pub(crate) mod key;
mod own_deletes;
pub(crate) mod pack;
pub(crate) mod purge;
mod queue;
pub(crate) mod refusals;
mod start;
pub(crate) mod tags;
mod watch;
mod writer;

pub(crate) use start::start;
