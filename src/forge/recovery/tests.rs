//! Recovery tests in real repositories.

mod assessed;
mod below;
mod bytes;
mod clones;
pub(in crate::recovery) mod fault;
pub(crate) mod fixture;
mod killed;
mod merged;
mod onward;
mod paused;
mod rolled;
mod states;
