//! Runs git for trusted work on clean repositories.
//!
//! It never runs in a folder that commands of a session can change. git gets its own environment
//! and settings and none of this machine: no hooks, no helpers, no aliases, and only the protocol
//! that the address needs. A secret is passed through a named pipe, never by argument, variable or
//! file.

mod agent;
mod config;
mod fifo;
mod folder;
mod process;
mod reason;
mod remote;
mod runner;
mod settings;
mod shell;
mod size;

pub use config::{Config, Paths};
pub(crate) use helmdeck_git::is_id;
pub(crate) use remote::{Refs, Remote};
pub(crate) use runner::Git;
