//! Recovery in real repositories.

pub(in crate::recovery) mod fault;
pub(crate) mod ground;
