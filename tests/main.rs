//! The one test binary of the whole product: end to end, and what no single crate can see.
//!
//! A file in this folder is a module here; `layering` fails if one is forgotten.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod cli;
mod layering;
