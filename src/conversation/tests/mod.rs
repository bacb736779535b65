//! Trials: the conformance suite on every driver, and what only real stores can show.

mod conformance;
mod defects;
mod endpoint;
mod health;
mod memory_limits;
mod own_storage;
mod random_operations;
mod replicas;
