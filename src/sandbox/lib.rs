#![doc = include_str!("README.md")]

mod calls;
mod cgroup;
mod check;
mod command;
mod config;
mod disk;
mod fill;
mod image;
mod limits;
mod local;
mod metrics;
mod output;
mod place;
mod probe;
mod processes;
mod runtime;
mod sandbox;
mod sessions;
mod stage;
mod variables;

pub use config::SessionConfig;
pub use sessions::{SessionInfo, SessionPlace, Sessions, Used};
pub use stage::{STAGE, StageEnd, stage};
