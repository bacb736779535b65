//! The commit protocol of a project: message format, hooks, caches of the history, and rescue
//! commits.
//!
//! `helmdeck_git` runs git.

mod caches;
pub mod closing;
mod commits;
mod features;
#[cfg(test)]
pub(crate) mod fixture;
mod hooks;
mod learned;
pub mod message;
mod repository;
mod rescue;

pub use caches::Line;
pub use commits::{Commits, Committed, NewCommit, Origin};
pub use helmdeck_forge_documents::branches::{BranchState, Branches};
pub use helmdeck_git::{
    BINARY_LINES, Branch, Change, Commit, Created, Merged, Oid, Operation, Output, Person, Run,
    Stages, State, Status, StatusEntry, Tag, Updated, Worktree,
};
pub use hooks::{Hook, Installed};
pub use repository::Git;
pub use rescue::Rescue;
