//! Archives: a store, or a part of one, as one sealed file that any other store can import.
//!
//! ```text
//! "HELMDECK" | format (4) | key id (16) | archive id (16)
//! length (4) | sealed record 0
//! length (4) | sealed record 1 ...
//! length (4) | sealed end with the number of records
//! ```
//!
//! A record is sealed under a key of the archive (derived from the memory key) and bound to the
//! whole header and to its number. So a record that was altered, moved, left out, doubled or taken
//! from another archive does not open, and a missing end is detected. Names, times and values are
//! all inside the seal. The clear part shows only the number of records and their lengths.

mod export;
mod format;
mod import;

use crate::entry::{Kind, Namespace};
use crate::error::StoreError;

pub use export::{Exported, export};
pub use import::{Imported, import};

/// Filter of entries. Default: all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveFilter {
    /// Entries of this namespace only; without a conversation, those of all conversations of the
    /// caller.
    pub namespace: Option<Namespace>,
    /// Entries of this kind only.
    pub kind: Option<Kind>,
}

impl ArchiveFilter {
    /// Returns whether an entry matches. Heads never do.
    #[must_use]
    pub fn takes(&self, namespace: &Namespace, kind: Kind) -> bool {
        let ours = |wanted: &Namespace| {
            wanted.tenant == namespace.tenant
                && wanted.subject == namespace.subject
                && (wanted.session.is_none() || wanted.session == namespace.session)
        };
        // A head belongs to the store that wrote it.
        kind != Kind::Head
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.namespace.as_ref().is_none_or(ours)
    }
}

/// Errors of an archive.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file is not an archive.
    #[error("this is not an archive of helmdeck")]
    NotAnArchive,
    /// The format version is unknown.
    #[error("the archive has format {0}; this version reads formats 1 and 2")]
    OtherFormat(u32),
    /// The archive was sealed with another key.
    #[error("the archive was sealed with key {archive}; the key given is {given}")]
    WrongKey {
        /// The id of the key that sealed it.
        archive: String,
        /// The ids of the keys given, current first.
        given: String,
    },
    /// The archive was altered: something was changed, moved or left out.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// The end of the archive is missing.
    #[error("the archive is incomplete: it ends after {read} records")]
    Incomplete {
        /// Number of records.
        read: u64,
    },
    /// An entry is too large to be a record.
    #[error("an entry is too large for an archive")]
    TooLarge,
    /// The file could not be read or written.
    #[error("{0}")]
    Io(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<std::io::Error> for ArchiveError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

#[cfg(test)]
mod tests;
