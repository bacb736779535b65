//! Quarantine: copies of damaged files, one for each content, made before a repair.

use super::{Files, atomic};
use crate::error::{Error, Result};
use crate::layout::{LAST_GOOD, QUARANTINE};

/// How many copies are kept of one name.
const MAX_COPIES: usize = 10;

impl Files {
    /// Copies a damaged file into quarantine, and returns the path of the copy.
    ///
    /// Nothing is copied if these bytes are there already, or ten copies of the name.
    pub fn quarantine(&self, file: &str, bytes: &[u8]) -> Result<Option<String>> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let sch = super::etag(bytes);
        let tail = format!(".{}", sch.get(..8).unwrap_or(&sch));
        let _guard = self.lock()?;
        let copies: Vec<String> = self
            .list(QUARANTINE)?
            .into_iter()
            .filter_map(|entry| {
                entry
                    .name
                    .starts_with(&format!("{name}."))
                    .then_some(entry.name)
            })
            .collect();
        if let Some(copy) = copies.iter().find(|copy| copy.ends_with(&tail)) {
            return Ok(Some(format!("{QUARANTINE}/{copy}")));
        }
        if copies.len() >= MAX_COPIES {
            return Ok(None);
        }
        let utc = self.now().seconds().to_string().replace([':', '-'], "");
        let copy = format!("{QUARANTINE}/{name}.{utc}{tail}");
        self.put(&copy, bytes, None)?;
        Ok(Some(copy))
    }

    /// Keeps the bytes of a document that is known to be good.
    pub(super) fn keep_good(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let at = last_good(file);
        let place = self.place(&at)?;
        atomic::write_copy(&place, bytes)
            .map_err(|error| Error::io("cannot write", &self.root().join(&at), &error))
    }
}

/// Where the last good bytes of a file lie.
pub fn last_good(file: &str) -> String {
    format!(
        "{LAST_GOOD}/{}",
        file.strip_prefix(".forge/").unwrap_or(file)
    )
}
