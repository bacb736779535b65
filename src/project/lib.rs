#![doc = include_str!("README.md")]

pub mod checkpoints;
pub mod error;
pub mod json;
pub mod layout;
pub mod recovery;
pub mod runner;
pub mod progress;
pub mod time;
pub mod triv;
pub mod world;

pub use error::{Category, Error, Result};
pub use json::{Json, Members};
pub use runner::{Ran, run_check};
pub use time::Time;
pub use triv::Triv;
pub use world::{Ids, World};
