//! What was done in a session: `progress.txt`, for people and for the next session.

pub mod text;

pub use text::{Entry, Log};
