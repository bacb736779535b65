//! Session ids, and the rules that select the next task.

pub mod id;
pub mod select;
