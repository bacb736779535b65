//! Checkpoints: verified commits from which work can resume.
//!
//! The annotated tag holds the whole manifest; a file mirrors it.

mod create;
mod keep;
mod list;
mod prune;
#[cfg(test)]
mod tests;

pub use create::{Create, Made};
pub use helmdeck_forge_documents::checkpoints::{Check, Manifest, NO_KEY, Name, PREFIX, State};
use helmdeck_forge_documents::checkpoints::{manifest, name, state};
pub use keep::{KEPT, Kept};
pub(crate) use list::check_trees;
pub use list::{Checkpoint, Checkpoints, Verified};
pub use prune::{Prune, Pruned};
