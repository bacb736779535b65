//! The targets, shared with the tests of the main workspace.

#[path = "../tests/fuzz/targets.rs"]
pub mod targets;
