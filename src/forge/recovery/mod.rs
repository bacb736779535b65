//! Recovery: assess the distance to the last checkpoint, decide, and roll back without losing
//! anything.

mod apply;
mod assess;
mod carry;
pub(crate) mod memory;
mod pause;
mod rollback;
#[cfg(test)]
pub(crate) mod tests;

pub use apply::{Applied, Apply};
pub use assess::Assess;
pub use helmdeck_forge_documents::recovery::decide::{Action, Class, Limits, REGRESSIONS, Size};
pub use helmdeck_forge_documents::recovery::paused::{Paused, TOKEN_SECONDS, Token};
pub use helmdeck_forge_documents::recovery::report::{Measures, Reason, Report, Verify};
pub use helmdeck_forge_documents::recovery::unknown::Unknown;
use helmdeck_forge_documents::recovery::{decide, paused, report, unknown};
pub use pause::{Ack, Acknowledged, By};
pub use rollback::Rollback;

use crate::project::Project;

/// The last acknowledgement of this clone.
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
