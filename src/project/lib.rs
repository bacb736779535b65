#![doc = include_str!("README.md")]

pub mod architecture;
pub mod artifacts;
#[cfg(test)]
mod by_hand;
pub mod checkpoints;
mod committed;
pub mod config;
pub mod error;
pub mod events;
pub mod features;
pub mod files;
pub mod focus;
pub mod git;
pub mod health;
pub mod init;
pub mod invariants;
pub mod issues;
pub mod json;
pub mod knowledge;
pub mod layout;
mod local;
pub mod merge;
pub mod prime;
pub mod progress;
pub mod project;
pub mod readers;
pub mod recovery;
pub mod repair;
pub mod runner;
pub mod scratch;
pub mod secrets;
pub mod sessions;
mod shared;
pub mod skills;
pub mod time;
#[cfg(test)]
mod trials;
pub mod triv;
pub mod trust;
mod vault;
mod withheld;
pub mod world;

pub use config::Config;
pub use error::{Category, Current, Error, Result};
pub use events::subjects::{self, Subject};
pub use files::{Document, Files, Guard, Loaded};
pub use git::{Git, Oid};
pub use json::{Json, Members};
pub use project::Project;
pub use runner::{Ran, Running, run_check};
pub use time::Time;
pub use triv::Triv;
pub use trust::{Trust, TrustState, TrustedCommand};
pub use world::{Ids, Links, World};
