//! The merge driver `forge-json`.
//!
//! Entries of lists are matched by id, key or text and unioned, so nothing that either side learned
//! is lost. Of single values, the side that changed one wins. Where both sides changed it, the
//! newer entry wins, counts add up, and a status becomes `failing`, which is the safe side.
//! Everything else is a conflict: the file keeps our version, their version goes into quarantine,
//! and JSON never contains conflict markers.

mod driver;
#[cfg(test)]
mod tests;

pub use driver::{Driven, drive};
pub(crate) use helmdeck_forge_documents::merge::join_lists;
pub use helmdeck_forge_documents::merge::{Merged, merge};
