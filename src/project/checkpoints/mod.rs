//! Checkpoints: commits on which everything that was to be checked succeeded. The annotated tag holds all that is known; a file
//! mirrors it.

mod keep;
mod manifest;
mod name;
mod state;

pub use keep::Kept;
pub use manifest::{Check, Manifest};
pub use name::Name;
pub use state::State;
