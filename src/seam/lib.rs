#![doc = include_str!("README.md")]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests make the files that are read"
    )
)]

mod config;
mod context;
mod doctor;
mod error;
mod fingerprint;
mod offer;
mod phase;
mod plan;
mod plans;
pub mod readers;
mod recall;
mod resolved;
mod seam;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod tokens;

pub use config::{Given, QueryUse, SeamConfig};
pub use context::{Context, Which};
pub use doctor::{Doctor, Source};
pub use error::{StateError, StateFault, Warning};
pub use fingerprint::fingerprint;
pub use helmdeck_core::text::{is_hidden, one_line};
pub use offer::{Candidate, Offer};
pub use phase::Phase;
pub use plans::{Plan, Plans};
pub use recall::Recall;
pub use seam::Seam;
pub use state::{PlanFiles, Store};
pub use tokens::tokens;
