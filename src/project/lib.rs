#![doc = include_str!("README.md")]

pub mod error;
pub mod issues;
pub mod json;
pub mod layout;
pub mod prime;
pub mod sessions;
pub mod time;
pub mod world;

pub use error::{Category, Error, Result};
pub use json::{Json, Members};
pub use time::Time;
pub use world::{Ids, World};
