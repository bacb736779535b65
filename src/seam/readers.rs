//! Read-only access to project memory and note vaults, by types that cannot write.
//!
//! All file access of this crate goes through a [`Look`]. No function of a [`Look`], nor of
//! anything made from one, creates, changes, locks or removes a file. A type that can write isn't
//! reachable from here:
//!
//! ```
//! fn reads(look: &dyn helmdeck_seam::readers::Look) {
//!     let _ = look.read(std::path::Path::new("a"), 1);
//! }
//!
//! fn finds(vault: &helmdeck_seam::readers::Vault<'_>, memory: &helmdeck_seam::readers::LongTerm<'_>) {
//!     let _ = (vault.root(), memory.root());
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn writes(look: &dyn helmdeck_seam::readers::Look) {
//!     let _ = look.write(std::path::Path::new("a"), b"a");
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn writes(vault: &helmdeck_seam::readers::Vault<'_>) {
//!     let _ = vault.write(std::path::Path::new("a"), b"a");
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn writes(memory: &helmdeck_seam::readers::LongTerm<'_>) {
//!     let _ = memory.files();
//! }
//! ```
//!
//! Other programs wrote these files. Pass their texts through [`helmdeck_core::text`] before you
//! show them.
//!
//! A [`Vault`] is a folder of notes in agentm's layout. [`LongTerm`] is the long-term memory in a
//! project's own `.forge/`.

mod long_term;
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that opens files, for reading"
)]
mod look;
mod name;
mod vault;

pub use long_term::{Learned, LongTerm, Topic};
pub use look::{Contents, DirEntry, Disk, FileInfo, Kind, Look};
pub use name::{Name, Unsafe};
pub use vault::{
    AlwaysLoad, Layout, Note, NoteFile, Priority, ProjectFolder, Spaces, Vault, is_conflict,
};
