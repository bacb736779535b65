//! Documents whose entries may have files of their own, so that two branches add without changing one file.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use super::{Damage, Files, Unreadable};
use crate::error::Result;
use crate::json;

/// A document without entries.
const EMPTY: &[u8] = b"{\"schema_version\": \"1.0\"}";

/// A file and its new bytes; `None` removes it.
pub type EntryWrite = (String, Option<Vec<u8>>);

/// Puts a document together from its own file and the files of its entries, and takes it apart.
pub trait Entries: fmt::Debug + Send + Sync {
    /// Returns the folder with the files of a document's entries. `None` if it has no such files.
    fn folder(&self, path: &str) -> Option<String>;

    /// Returns the whole document. A file of it that is damaged is returned as it is.
    ///
    /// # Errors
    /// The file of an entry that is damaged, and how.
    fn join(&self, path: &str, main: &[u8], entries: &[(String, Vec<u8>)]) -> Result<Vec<u8>, (String, Damage)>;

    /// Returns the writes that make a new version, in their order. `None` if it is written whole.
    ///
    /// `salt` is a random number: it makes the names of new files unique among all clones.
    fn split(
        &self,
        path: &str,
        main: &[u8],
        entries: &[(String, Vec<u8>)],
        new: &[u8],
        salt: u64,
    ) -> Option<Vec<EntryWrite>>;
}

/// Name of a file, and its content.
type EntryFile = (String, Vec<u8>);

impl Files {
    /// Returns these files with documents whose entries may have files of their own.
    #[must_use]
    pub fn with_entries(self, entries: Arc<dyn Entries>) -> Self {
        Self { entries: Some(entries), ..self }
    }

    /// Writes without a scan, under the lock the caller holds.
    pub fn put(&self, path: &str, bytes: &[u8], mode: Option<u32>) -> Result<()> {
        self.check_writing(path)?;
        if self.put_apart(path, bytes)? { Ok(()) } else { self.put_one(path, bytes, mode) }
    }

    /// Returns the whole document at a path, from the bytes of its own file.
    pub(super) fn joined(&self, path: &str, main: Vec<u8>) -> Result<Vec<u8>> {
        let (Some(entries), Some(files)) = (&self.entries, self.entry_files(path)?) else { return Ok(main) };
        if files.is_empty() {
            return Ok(main);
        }
        entries.join(path, &main, &files).map_err(|(file, damage)| {
            let bytes = files.iter().find(|(name, _)| *name == file).map(|(_, bytes)| bytes.as_slice());
            self.unreadable(&file, bytes.unwrap_or_default(), Unreadable::Damaged(damage))
        })
    }

    /// Writes a document whose entries have files of their own. Returns whether it is such a document.
    ///
    /// New files come first and removals last, so that no kill loses an entry.
    fn put_apart(&self, path: &str, new: &[u8]) -> Result<bool> {
        let (Some(entries), Some(files)) = (&self.entries, self.entry_files(path)?) else { return Ok(false) };
        let (main, is_lost) = match self.read_one(path) {
            Ok(Some(main)) => (main, false),
            // It is new, or was lost while its entries were not.
            Ok(None) => (EMPTY.to_vec(), true),
            // What cannot be read, as it is too large, is replaced as a whole.
            Err(_) => return Ok(false),
        };
        let salt = RandomState::new().build_hasher().finish();
        let Some(writes) = entries.split(path, &main, &files, new, salt) else { return Ok(false) };
        for (file, bytes) in writes {
            // What replaces a lost document may know nothing of its entries: they stay.
            if is_lost && files.iter().any(|(name, _)| *name == file) {
                continue;
            }
            let Some(bytes) = bytes else {
                self.remove(&file)?;
                continue;
            };
            let old = if file == path {
                Some(&main)
            } else {
                files.iter().find(|(name, _)| *name == file).map(|(_, old)| old)
            };
            // Unknown members may have numbers with more digits than Rust's number types keep.
            let bytes = match old.map(|old| std::str::from_utf8(old)) {
                Some(Ok(text)) => json::Numbers::of(text).put_back(bytes),
                _ => bytes,
            };
            self.put_one(&file, &bytes, None)?;
        }
        Ok(true)
    }

    /// Returns the files of a document's entries, by name. `None` if it has no such files.
    fn entry_files(&self, path: &str) -> Result<Option<Vec<EntryFile>>> {
        let Some(folder) = self.entries.as_ref().and_then(|entries| entries.folder(path)) else { return Ok(None) };
        let mut all = Vec::new();
        for entry in self.list(&folder)? {
            if entry.folder || entry.name.starts_with('.') || !entry.name.ends_with(".json") {
                continue;
            }
            let file = format!("{folder}/{}", entry.name);
            // It may have been removed meanwhile.
            if let Some(bytes) = self.read_one(&file)? {
                all.push((file, bytes));
            }
        }
        all.sort();
        Ok(Some(all))
    }
}
