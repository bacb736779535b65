#![doc = include_str!("README.md")]

pub mod discover;
pub mod head;

#[cfg(feature = "run")]
mod changes;
mod error;
#[cfg(any(all(test, feature = "run"), feature = "testing"))]
pub mod fixture;
#[cfg(feature = "run")]
mod log;
#[cfg(feature = "run")]
mod merges;
#[cfg(feature = "run")]
mod objects;
#[cfg(feature = "run")]
mod oid;
#[cfg(feature = "run")]
mod refs;
#[cfg(feature = "run")]
mod repository;
#[cfg(feature = "run")]
mod run;
#[cfg(feature = "run")]
mod status;
#[cfg(feature = "run")]
mod tags;
#[cfg(feature = "run")]
mod trees;
#[cfg(feature = "run")]
mod worktrees;

#[cfg(feature = "run")]
pub use self::{
    changes::{BINARY_LINES, Change},
    log::{Commit, Person, since, split, trailer, trailers},
    merges::{Merged, Stages},
    objects::{Object, blob_name, is_id},
    oid::Oid,
    refs::{Branch, Updated},
    repository::{Git, Operation, complaint},
    run::{Output, Run},
    status::{State, Status, StatusEntry},
    tags::{Created, Tag},
    worktrees::Worktree,
};
pub use error::{Error, Kind, Result};
