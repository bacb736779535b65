//! Read-only views for programs that show a project: what no command lists.
//!
//! Nothing here changes a file, takes a lock or renews a session. Open the project with
//! [`Project::reading`].
//!
//! [`Project::reading`]: crate::Project::reading

mod commits;
mod diff;
mod knowledge;
mod progress;
#[cfg(test)]
mod tests;
mod tree;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use commits::{SeenCommit, commits, revisions};
pub use diff::{Diff, diff};
pub use knowledge::{KnowledgeView, knowledge};
pub use progress::{ProgressView, progress, progress_of};
pub use tree::{TreeFile, tree};

use crate::error::{Error, Result};

/// Which page of a list is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct PageRequest {
    /// The `next` of the page before
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NEXT"))]
    pub after: Option<String>,
    /// Maximum number of items
    #[schemars(range(min = 1, max = 1000))]
    #[cfg_attr(feature = "cli", arg(long, default_value_t = PageRequest::LIMIT, value_name = "NUMBER"))]
    pub limit: usize,
}

impl PageRequest {
    /// Maximum number of items if the caller names none.
    pub const LIMIT: usize = 100;
}

impl Default for PageRequest {
    fn default() -> Self {
        Self {
            after: None,
            limit: Self::LIMIT,
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListPage<T> {
    /// The items
    pub items: Vec<T>,
    /// Number of items in the whole list
    pub total: usize,
    /// Pass it as `after` to get the next page; null in the last one
    pub next: Option<String>,
}

impl<T> ListPage<T> {
    /// Cuts the wanted page out of a list whose items have unique names.
    ///
    /// # Errors
    /// `Usage` if no item has the name that the caller gave.
    pub fn of(all: Vec<T>, wanted: &PageRequest, name: impl Fn(&T) -> String) -> Result<Self> {
        let total = all.len();
        let start = match &wanted.after {
            None => 0,
            Some(after) => {
                let at = all.iter().position(|item| name(item) == *after);
                let gone = || {
                    Error::usage(format!(
                        "{after:?} is not in the list any more: read it from its beginning"
                    ))
                };
                at.ok_or_else(gone)? + 1
            }
        };
        let items: Vec<T> = all.into_iter().skip(start).take(wanted.limit).collect();
        let next = items
            .last()
            .filter(|_| start + items.len() < total)
            .map(&name);
        Ok(Self { items, total, next })
    }
}
