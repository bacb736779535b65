//! Recovery: assess the distance to the last checkpoint, decide, and roll back without losing anything.

mod apply;
mod assess;
mod attempts;
mod carry;
mod clean;
mod journal;
pub(crate) mod memory;
mod pause;
mod restore;
mod rollback;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

pub use apply::{Applied, Apply};
pub use assess::Assess;
pub use clean::{Cleaned, Needed};
pub use helmdeck_forge_documents::recovery::decide::{Action, Case, Class, Decision, Limits, Size, UNKNOWN, decide};
pub use helmdeck_forge_documents::recovery::paused::{Paused, TOKEN_SECONDS, Token};
pub use helmdeck_forge_documents::recovery::report::{Measures, Reason, Report, Verify};
pub use helmdeck_forge_documents::recovery::unknown::Unknown;
use helmdeck_forge_documents::recovery::{decide, paused, report, unknown};
pub use journal::{Acknowledged, Attempts, Failing, Journal, Mode, Rollback, Step};
pub use pause::{Ack, By};

use crate::project::Project;

/// The recovery journal.
pub const FILE: &str = ".forge/.local/recovery.json";

/// The recovery of a project.
#[derive(Debug, Clone, Copy)]
pub struct Recovery<'a> {
    project: &'a Project,
}

impl<'a> Recovery<'a> {
    /// Returns the recovery of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

/// Prefixes of rollback branches.
///
/// The second is used if a branch blocks the first, the third if branches block both.
const ROLLBACKS: [&str; 3] = ["forge/rollback", "forge-rollback", "forge-rollbacks"];

/// Says whether a branch was made by a rollback.
pub(crate) fn is_rollback(branch: &str) -> bool {
    ROLLBACKS.iter().any(|folder| branch.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}
