#![doc = include_str!("README.md")]

pub mod agent;
mod chain;
pub mod folder;
mod front;
mod log;
pub mod manifest;
mod pattern;
mod samples;
pub mod source;
mod trigger;

pub use agent::{Imported, export, import};
pub use chain::{Chains, circles, plan};
pub use folder::{Skill, Tokens, estimate, scan};
pub use front::{Front, Value};
pub use log::{Logged, LoggedMatch, Stat, not_run, stats};
pub use manifest::{Dependencies, Manifest, Problem, Read, Triggers, read};
pub use pattern::Pattern;
pub use samples::samples;
pub use trigger::{FIRES, Kind, Match, Query, Reason, matches};
