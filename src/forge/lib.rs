#![doc = include_str!("README.md")]

pub mod architecture;
pub mod artifacts;
pub mod checkpoints;
mod committed;
pub mod config;
pub mod environment;
pub mod error;
pub mod events;
pub mod features;
pub mod files;
#[cfg(test)]
mod fixture;
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
pub mod recovery;
mod redact;
pub mod repair;
pub mod runner;
pub mod scratch;
pub mod secrets;
pub mod sessions;
mod shared;
pub mod skills;
#[cfg(test)]
mod tests;
pub mod time;
pub mod triv;
pub mod trust;

pub use config::Config;
pub use environment::{Ids, Links, ProjectEnvironment};
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
