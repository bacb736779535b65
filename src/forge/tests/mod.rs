//! Larger tests of the crate.
//!
//! An end-to-end test on a real crate in a real repository, many processes at once, damage of every
//! kind, and credentials in every input.

mod damage;
mod monorepo;
mod proof;
mod secret;
mod together;
