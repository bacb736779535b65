//! git, as a program: what a project asks of it, and the few things it writes with it.
//!
//! git itself is called, so hooks, signing, filters, work trees and settings behave as those of the user's own git. Nothing here moves
//! a branch back, throws away a change or deletes a file.

mod caches;
mod changes;
mod commits;
mod features;
#[cfg(test)]
pub(crate) mod fixture;
mod hooks;
mod learned;
mod lint;
mod log;
mod merges;
pub mod message;
mod oid;
mod refs;
mod repository;
mod rescue;
mod run;
mod sha1;
mod status;
mod tags;
mod trees;
mod worktrees;

pub use caches::Line;
pub use changes::{BINARY_LINES, Change};
pub use commits::{Commits, Committed, NewCommit, Origin};
pub use helmdeck_forge_documents::branches::{BranchState, Branches};
pub use hooks::{Hook, Installed};
pub use lint::Linted;
pub use log::{Commit, Person};
pub use merges::{Merged, Stages};
pub use oid::Oid;
pub use refs::{Branch, Updated};
pub use repository::{Git, Operation};
pub use rescue::Rescue;
pub use run::{Output, Run};
pub use status::{State, Status, StatusEntry};
pub use tags::{Created, Tag};
pub use worktrees::Worktree;
