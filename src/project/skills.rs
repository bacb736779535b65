//! Skills: what an agent knows to do, found when it is of use, and read only as far as it is needed.
//!
//! Metadata of all skills are cheap and always at hand; the instructions of one are read when it is shown; what else it brings, file
//! by file. A skill grants nothing: its scripts run only when somebody runs them, with the rights of whoever does.

mod agent;
mod chain;
mod folder;
mod front;
mod log;
mod manifest;
mod pattern;
mod samples;
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
