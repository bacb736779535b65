//! The merge driver `forge-json`.
//!
//! Entries of lists are unioned by what names them, so nothing that either side learned is lost. Of
//! single values the side that changed one wins. Where both did, the newer entry wins, counts add up,
//! and a status becomes `failing`, which is the safe side. What cannot be settled so is a conflict: the
//! file keeps ours, theirs is put into quarantine, and never a mark of a conflict stands in JSON.

mod driver;
#[cfg(test)]
mod tests;

pub use driver::{Driven, drive};
pub use helmdeck_forge_documents::merge::{Merged, merge};
