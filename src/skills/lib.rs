#![doc = include_str!("README.md")]

mod chain;
mod folder;
mod manifest;
mod pattern;
mod samples;
mod skill;
mod trigger;

pub use chain::{Chains, plan};
pub use folder::{MAX_INSTRUCTIONS, scan};
pub use manifest::body;
pub use samples::samples;
pub use skill::{Dependencies, Problem, Skill, Tokens, Triggers, estimate};
pub use trigger::{FIRES, Kind, Match, Query, Reason, matches};
