//! Merging the files of two branches, one entry each.
//!
//! Of single values the changed one wins. Where both changed one, the newer entry wins, counts add
//! up, and a status becomes `failing`, the safe side. What cannot be settled is a conflict: the
//! result keeps ours and names the conflict, and no conflict marker is ever written into JSON.

mod issue;
mod rules;

pub use issue::join_lists;
pub(crate) use rules::union;
pub use rules::{Merged, merge};
