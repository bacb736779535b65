#![doc = include_str!("README.md")]

pub mod agents;
pub mod artifacts;
pub mod checkpoints;
mod committed;
pub mod config;
pub mod documents;
pub mod environment;
pub mod events;
pub mod export;
pub mod features;
#[cfg(test)]
mod fixture;
pub mod focus;
pub mod forms;
pub mod git;
pub mod health;
pub mod init;
pub mod invariants;
pub mod issues;
pub mod knowledge;
mod local;
pub mod merge;
pub mod prime;
pub mod progress;
pub mod project;
pub mod recovery;
mod redact;
pub mod repair;
pub mod runner;
pub mod sessions;
mod shared;
pub mod skills;
#[cfg(test)]
mod tests;
pub mod trust;
pub mod verb;
pub mod verbs;
pub mod view;
pub mod work;

pub use helmdeck_forge_files::{
    Category, Current, Document, Error, Files, Guard, Json, Loaded, Members, Result, Time, Triv,
    error, files, json, layout, secrets, time, triv,
};

pub use config::Config;
pub use environment::{Ids, Links, ProjectEnvironment, Trust, Zone};
pub use events::subjects::{self, Subject};
pub use git::{Git, Oid};
pub use project::Project;
pub use runner::{Ran, Running};
pub use trust::{TrustState, TrustedCommand};
