#![doc = include_str!("README.md")]

pub mod branches;
pub mod checkpoints;
pub mod entries;
pub mod features;
pub mod issues;
pub mod knowledge;
pub mod marks;
pub mod merge;
pub mod progress;
pub mod recovery;
pub mod sessions;
pub mod tracking;

/// The text of a new project's `architecture.md`.
pub const ARCHITECTURE: &[u8] = include_bytes!("architecture.md");
