#![doc = include_str!("README.md")]

mod describe;
mod error;
pub mod github;
mod http;
pub mod linear;
pub mod mapping;
mod mark;
pub mod merge;
pub mod sync;
mod tracker;
pub mod webhook;

pub use error::{Error, Kind, Result};
pub use http::{Connection, Limit};
pub use tracker::{
    Comment, CommentPage, Directory, Edit, Issue, IssueComments, Label, Page, Person, Relation,
    State, StateKind, Tracker,
};
