#![doc = include_str!("README.md")]

pub mod checkpoints;
pub mod config;
pub mod error;
pub mod files;
pub mod git;
pub mod json;
pub mod layout;
pub mod progress;
pub mod project;
pub mod recovery;
pub mod runner;
pub mod secrets;
pub mod time;
pub mod triv;
pub mod world;

pub use config::Config;
pub use error::{Category, Current, Error, Result};
pub use files::{Document, Files, Guard, Loaded};
pub use git::{Git, Oid};
pub use json::{Json, Members};
pub use project::Project;
pub use runner::{Ran, run_check};
pub use time::Time;
pub use triv::Triv;
pub use world::{Ids, World};
