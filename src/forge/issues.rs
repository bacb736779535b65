//! The issues of a project: units of work, local or from a tracker.
//!
//! Everything works without a tracker. With one, each local change is added to the outbox in the
//! same locked write, and the sync sends it later.

mod add;
mod beads;
mod close;
mod graph;
mod history;
#[cfg(test)]
mod killed_tests;
mod lines;
mod list;
mod names;
mod queue;
mod rename;
mod set;
mod show;
mod start;
mod store;
#[cfg(test)]
mod tests;
mod text;

pub use add::{AddIssue, IssueFields};
pub use close::{CloseIssue, Closed};
pub use helmdeck_forge_documents::issues::{
    Active, AgentState, CANCELLED, Checked, Comment, Criterion, DONE, GitRefs, IN_PROGRESS, Issue,
    LOCAL, MemoryTrace, OPEN, check_key, is_comment_id, is_key, is_placeholder, key_order,
};
pub use history::Record;
pub(crate) use history::{closed_aliases, keys as done};
pub use lines::{criteria, line, priority};
pub use list::{IssueCounts, IssueList, Item, ListIssues, Listed, Scope};
pub(crate) use names::{reference, resolve};
pub use queue::{ChangeKind, IssueChange, comment_id_there};
pub use set::{IssueChanged, IssueEdit, SetIssue};
pub use show::{IssueView, ShowIssue};
pub use start::{BranchOutcome, BranchState, Start, Started};
pub(crate) use start::{branch_name, hand_over, slug};
pub(crate) use store::read;

use crate::error::{Error, Result};
use crate::project::Project;

/// The issues of a project.
#[derive(Debug, Clone, Copy)]
pub struct Issues<'a> {
    project: &'a Project,
}

impl Project {
    /// Returns the issues.
    #[must_use]
    pub const fn issues(&self) -> Issues<'_> {
        Issues::new(self)
    }
}

impl<'a> Issues<'a> {
    /// Returns the issues of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Issues<'_> {
    /// Returns the issues that are not in the history, in the order of their keys.
    ///
    /// # Errors
    /// `Corrupt` if a file is damaged.
    pub fn read(&self) -> Result<Active> {
        store::read(self.project.files())
    }

    /// Returns the name that counts as "me".
    pub(crate) fn me(&self) -> &str {
        self.project
            .config()
            .linear
            .me
            .as_deref()
            .unwrap_or(&self.project.environment().agent)
    }
}

/// Returns the error for an issue that does not exist.
fn absent(key: &str) -> Error {
    Error::not_found(format!("there is no issue {key}")).next("helmdeck forge issue list")
}
