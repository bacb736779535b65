//! Lost documents: they existed and are gone.

use super::{Files, last_good};
use crate::error::{Category, Error, Result};
use crate::layout::{ACTIVE, CONFIG, FEATURES_ENTRIES, KNOWLEDGE_ENTRIES};

/// What is wrong with a document that [`Files::is_lost`].
pub const LOST: &str = "it was there and is gone";
/// The document, and the folders of entries, that are never removed.
const NEVER_REMOVED: [&str; 3] = [KNOWLEDGE_ENTRIES, FEATURES_ENTRIES, ACTIVE];

impl Files {
    /// Says whether a shared document existed and is gone.
    ///
    /// That is so if git has it, or if its last good copy is kept. To begin it again would lose its
    /// content, as overwriting a damaged one would. A caller that changes it calls `was_there`
    /// before it takes the lock.
    ///
    /// # Errors
    /// `Refused`, `Failed`.
    pub fn is_lost(&self, path: &str) -> Result<bool> {
        Ok(NEVER_REMOVED.contains(&path) && self.entry(path)?.is_none() && self.was_there(path)?)
    }

    /// Says whether a document that is never removed exists or existed.
    ///
    /// If it existed and does not exist now, it is lost. This may run git.
    ///
    /// # Errors
    /// As [`Self::is_lost`].
    pub(super) fn was_there(&self, path: &str) -> Result<bool> {
        if !NEVER_REMOVED.contains(&path) {
            return Ok(false);
        }
        if self.entry(path)?.is_some() || self.has_good(path)? {
            return Ok(true);
        }
        self.tracks
            .as_ref()
            .map_or(Ok(false), |tracks| tracks(path))
    }

    /// Says whether there is a last good copy of a document that is never removed.
    ///
    /// # Errors
    /// As [`Self::is_lost`].
    pub(super) fn has_good(&self, path: &str) -> Result<bool> {
        // A branch without a memory lacks its settings too.
        Ok(NEVER_REMOVED.contains(&path)
            && self.entry(&last_good(path))?.is_some()
            && self.entry(CONFIG)?.is_some())
    }
}

/// Returns the error of a document that was there and is gone.
pub(super) fn error(path: &str) -> Error {
    let error = Error::new(Category::Corrupt, "E_CORRUPT", format!("{path}: {LOST}"))
        .hint("nothing was begun anew, and nothing will be until it is put back or given up");
    if path == ACTIVE {
        error.next(format!("helmdeck forge repair {path}"))
    } else {
        error.next(back(path))
    }
}

/// Returns the command that puts a lost folder of entries back.
#[must_use]
pub fn back(folder: &str) -> String {
    format!("git restore -- {folder}")
}
