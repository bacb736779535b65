//! The issues of a project: units of work, local or from a tracker.
//!
//! Everything works without a tracker. With one, each local change is added to the outbox in the
//! same locked write, and the sync sends it later.

mod beads;
mod close;
mod edit;
mod graph;
mod history;
#[cfg(test)]
mod killed_tests;
mod names;
mod queue;
mod rename;
mod start;
mod store;
#[cfg(test)]
mod tests;
mod text;

pub use close::{Closed, Done};
pub use edit::{Add, Changed, CriterionDone, Edit, NewComment};
pub use helmdeck_forge_documents::issues::{
    Active, AgentState, CANCELLED, Checked, Comment, Criterion, DONE, GitRefs, IN_PROGRESS, Issue,
    LOCAL, MemoryTrace, OPEN, check_key, is_comment_id, is_key, is_placeholder, key_order,
};
pub use history::Record;
pub(crate) use history::{closed_aliases, keys as done};
pub(crate) use names::{reference, resolve};
pub use queue::{ChangeKind, IssueChange, comment_id_there};
pub use start::{BranchOutcome, BranchState, Start, Started};
pub(crate) use start::{branch_name, hand_over, slug};
pub(crate) use store::read;

use helmdeck_forge_documents::marks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::graph::Graph;
use self::names::Names;
use crate::error::{Error, Result};
use crate::project::Project;
use crate::sessions::Sessions;

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

/// Which issues a list holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Those that are not done: `open`.
    #[default]
    Open,
    /// Open ones that are mine: `mine`.
    Mine,
    /// Open ones that wait for nothing, and that no other session works on: `ready`.
    Ready,
    /// Those that are done: `done`.
    Done,
    /// All of them: `all`.
    All,
}

/// Number of issues by standing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Issues that are not done.
    pub open: u64,
    /// Open issues that can be started.
    pub ready: u64,
    /// Open issues that wait for others.
    pub blocked: u64,
    /// Issues that are done.
    pub done: u64,
}

/// A list of issues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Number of all issues by standing.
    pub counts: Counts,
    /// The issues: by priority, then by age, then by key. Those that are done come last, by key.
    pub issues: Vec<Item>,
}

/// An issue in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// Whether it is done.
    pub over: bool,
    /// Whether it can be started: it is open, waits for nothing, and no other session works on it.
    pub ready: bool,
    /// What it waits for: keys of issues that are not done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// Whether another session works on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
    /// The issue.
    pub issue: Issue,
}

/// An issue with its version tag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Version tag of the issue, for `if_match`.
    pub etag: String,
    /// The issue with its standing.
    #[serde(flatten)]
    pub item: Item,
    /// The keys of other issues that had this number in another clone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The summary of an issue that is done, in Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
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

    /// Lists issues.
    ///
    /// # Errors
    /// `Corrupt` if a file is damaged.
    pub fn list(&self, scope: Scope) -> Result<Listed> {
        let active = self.read()?;
        let done = history::keys(self.project.files())?;
        let claimed = Sessions::new(self.project).claimed();
        let graph = Graph::new(&active.issues, &done);
        let mut all: Vec<Item> = active
            .issues
            .iter()
            .map(|issue| graph.item(issue, &claimed))
            .collect();
        all.sort_by(|a, b| {
            (a.over, crate::sessions::issue_order(&a.issue))
                .cmp(&(b.over, crate::sessions::issue_order(&b.issue)))
        });
        let closed = done
            .iter()
            .filter(|key| !active.issues.iter().any(|issue| issue.linear_id == **key))
            .count();
        let count = |is: &dyn Fn(&Item) -> bool| all.iter().filter(|item| is(item)).count() as u64;
        let counts = Counts {
            open: count(&|item| !item.over),
            ready: count(&|item| item.ready),
            blocked: count(&|item| !item.over && !item.waits_for.is_empty()),
            done: count(&|item| item.over) + closed as u64,
        };
        let me = self.me();
        all.retain(|item| match scope {
            Scope::Open => !item.over,
            Scope::Mine => {
                !item.over
                    && item
                        .issue
                        .owner()
                        .is_some_and(|owner| owner.trim().eq_ignore_ascii_case(me))
            }
            Scope::Ready => item.ready,
            Scope::Done => item.over,
            Scope::All => true,
        });
        if matches!(scope, Scope::Done | Scope::All) {
            for record in history::all(self.project.files())? {
                if !active
                    .issues
                    .iter()
                    .any(|issue| issue.linear_id == record.issue.linear_id)
                {
                    all.push(graph.item(&record.issue, &claimed));
                }
            }
        }
        Ok(Listed {
            counts,
            issues: all,
        })
    }

    /// Returns an issue by its key, or by an earlier key of it; one that is done too.
    ///
    /// # Errors
    /// `NotFound`; `Usage` for what is no key; `Corrupt`.
    pub fn show(&self, key: &str) -> Result<Shown> {
        let (number, _) = marks::split(key);
        check_key(number).map_err(Error::usage)?;
        let active = self.read()?;
        let names = Names::read(self.project.files())?;
        let done: Vec<String> = names.done().map(|(key, _)| key.to_owned()).collect();
        let also = names.also(number);
        let claimed = Sessions::new(self.project).claimed();
        let graph = Graph::new(&active.issues, &done);
        if let Some(issue) = active.find(key) {
            let mut item = graph.item(issue, &claimed);
            start::fill_refs(self.project, &mut item.issue);
            return Ok(Shown {
                etag: store::etag(issue)?,
                item,
                also,
                summary: None,
            });
        }
        let record = history::find(self.project.files(), key)?.ok_or_else(|| absent(key))?;
        let mut item = graph.item(&record.issue, &claimed);
        start::fill_refs(self.project, &mut item.issue);
        Ok(Shown {
            etag: store::etag(&record.issue)?,
            item,
            also,
            summary: Some(record.summary),
        })
    }
}

/// Returns the error for an issue that does not exist.
fn absent(key: &str) -> Error {
    Error::not_found(format!("there is no issue {key}")).next("helmdeck forge issue list")
}
