//! Checkpoints: commits on which everything that was to be checked succeeded. The annotated tag holds all that is known; a file
//! mirrors it.

mod create;
mod keep;
mod list;
mod manifest;
mod name;
mod prune;
mod state;
#[cfg(test)]
mod tests;

pub use create::{Create, Made};
pub use keep::{KEPT, Kept};
pub(crate) use list::check_trees;
pub use list::{Checkpoint, Checkpoints, Verified};
pub use manifest::{Check, Manifest};
pub use name::{NO_KEY, Name, PREFIX};
pub use prune::{Prune, Pruned};
pub use state::State;
