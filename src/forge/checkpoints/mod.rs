//! Checkpoints: states that were verified, each an annotated tag with a manifest in the memory.
//!
//! What counts is the tree that was verified: after a squash, rebase, amend or cherry-pick, a
//! commit of this branch with the same code is the checkpoint.

mod create;
mod list;
mod same;
#[cfg(test)]
mod tests;

pub use create::{Create, Made};
pub use helmdeck_forge_documents::checkpoints::{Check, Manifest, NO_KEY, Name, PREFIX, State};
use helmdeck_forge_documents::checkpoints::{manifest, name, state};
pub use list::{Checkpoint, Checkpoints};
pub(crate) use list::{check_trees, encode};
pub(crate) use same::since;
