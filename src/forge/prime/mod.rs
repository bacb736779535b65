//! The briefing of a new session.

mod brief;
mod fence;
mod gather;

pub use brief::{BUDGET, LeftOut, Primed};
pub use gather::prime;
pub(crate) use gather::{budget, gather};
