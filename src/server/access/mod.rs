//! Who calls, and what it may do: the one place that turns what a request proves into a [`Caller`].
//!
//! The front puts the caller into the request's extensions; a route takes it from there ([`By`]) and asks it before it acts.

mod challenge;
mod extract;

pub(crate) use challenge::{ASK, need, need_run};
pub(crate) use extract::By;
