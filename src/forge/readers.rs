//! What may be read of the memory of others, by types that cannot write.
//!
//! This is all of this crate that the process seam uses. Read-only *by type* means: every way to a file that begins here is a [`Look`],
//! and no function of a [`Look`], nor of anything made from one, creates, changes, locks or removes anything. What can
//! ([`Files`](crate::Files), [`Project`](crate::Project)) cannot be had from here:
//!
//! ```
//! fn reads(look: &dyn helmdeck_forge::readers::Look) {
//!     let _ = look.read(std::path::Path::new("a"), 1);
//! }
//!
//! fn finds(vault: &helmdeck_forge::readers::Vault<'_>, memory: &helmdeck_forge::readers::LongTerm<'_>) {
//!     let _ = (vault.root(), memory.root());
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn writes(look: &dyn helmdeck_forge::readers::Look) {
//!     let _ = look.write(std::path::Path::new("a"), b"a");
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn writes(vault: &helmdeck_forge::readers::Vault<'_>) {
//!     let _ = vault.write(std::path::Path::new("a"), b"a");
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn writes(memory: &helmdeck_forge::readers::LongTerm<'_>) {
//!     let _ = memory.files();
//! }
//! ```
//!
//! What is read was written by others: [`visible`] and [`one_line`] make of it what may be shown.
//!
//! A [`Vault`] is a folder of notes as agentm keeps it; [`LongTerm`] is the long-term memory in a project's own `.forge/`.

mod forge;
mod look;
mod name;
mod shown;

pub use forge::{Learned, LongTerm, Topic};
pub use look::{About, Contents, DirEntry, Disk, Kind, Look};
pub use name::{Name, Unsafe};
pub use shown::{is_hidden, one_line, visible};

pub use crate::vault::{AlwaysLoad, Layout, Note, NoteFile, Priority, ProjectFolder, Spaces, Vault, is_conflict};
