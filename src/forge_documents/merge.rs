//! Merging the documents of two branches.
//!
//! Entries of lists are joined by their names, so nothing that either side learned is lost. Of single
//! values the changed one wins. Where both changed one, the newer entry wins, counts add up, and a
//! status becomes `failing`, the safe side. What cannot be settled is a conflict: the result keeps ours
//! and names the conflict, and no conflict marker is ever written into JSON.

mod apart;
mod issue;
mod links;
mod rules;

pub(crate) use apart::{next_id, rename, title};
pub use issue::join_lists;
pub use rules::{Merged, merge};
pub(crate) use rules::{name_of, union};
