//! Files of the sync: the state of this clone, and the values that both sides had last.

use std::collections::HashMap;

use helmdeck_forge::{Category, Error, Files, Result, json};
use helmdeck_forge_documents::tracking::{Base, SyncState, base_path};
use helmdeck_forge_files::Document as _;
use helmdeck_forge_files::layout::BASES;

#[derive(Debug, Clone, Copy)]
pub(super) struct Store<'a> {
    files: &'a Files,
}

impl<'a> Store<'a> {
    pub(super) const fn new(files: &'a Files) -> Self {
        Self { files }
    }

    /// Returns the state; that of a new clone if there is none.
    pub(super) fn state(&self) -> Result<SyncState> {
        Ok(self
            .files
            .load::<SyncState>()?
            .map_or_else(SyncState::skeleton, |loaded| loaded.value))
    }

    pub(super) fn edit(&self, change: impl FnOnce(&mut SyncState)) -> Result<()> {
        self.files.edit(None, |state: &mut SyncState| {
            change(state);
            Ok(())
        })
    }

    /// Returns the values that both sides had last, by the id of the issue.
    ///
    /// A damaged file counts as absent: at worst its issue gets conflicts.
    pub(super) fn bases(&self) -> Result<HashMap<String, Base>> {
        let mut bases = HashMap::new();
        for entry in self.files.list(BASES)? {
            let Some(path) = entry.name.strip_suffix(".json").and_then(base_path) else {
                continue;
            };
            match self.files.load_at::<Base>(&path) {
                Ok(loaded) => {
                    bases.extend(loaded.map(|loaded| (loaded.value.id.clone(), loaded.value)))
                }
                Err(error) if error.category == Category::Corrupt => {
                    tracing::warn!(path, %error, "a base is damaged, and counts as absent");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bases)
    }

    pub(super) fn put_base(&self, base: &Base) -> Result<()> {
        let path = base_path(&base.id).ok_or_else(|| {
            Error::new(
                Category::Failed,
                "E_TRACKER_SHAPE",
                "an id of the tracker is no plain name",
            )
        })?;
        let text = json::print(base)
            .map_err(|error| Error::new(Category::Failed, "E_FAILED", error.to_string()))?;
        if self.files.read(&path)?.as_ref() != Some(&text) {
            self.files.write(&path, &text)?;
        }
        Ok(())
    }
}
