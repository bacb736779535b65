//! Passes that a session start saw in this clone.
//!
//! Where the memory is made for merges, they are not committed: two people who start sessions would otherwise change
//! the file of the same feature each time.

use std::collections::BTreeMap;
use std::path::PathBuf;

use helmdeck_forge_documents::features::Feature;
use serde::{Deserialize, Serialize};

use crate::layout::LOCAL;
use crate::project::Project;
use crate::shared;
use crate::time::Time;

/// Name of the file, below the folder of this clone.
const FILE: &str = "probes.json";

/// A pass that was seen, and not stored as evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pass {
    at: Time,
    code_tree: String,
}

/// The last pass of each feature, by its id.
#[derive(Debug, Default)]
pub(super) struct Probes(BTreeMap<String, Pass>);

impl Probes {
    /// Reads them. A file that cannot be read has none.
    pub(super) fn read(project: &Project) -> Self {
        Self(shared::read(&path(project)).and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
    }

    /// Says whether a feature passed on this code.
    pub(super) fn passed(&self, feature: &Feature, code_tree: Option<&str>) -> bool {
        self.0.get(&feature.id).is_some_and(|pass| Some(pass.code_tree.as_str()) == code_tree)
    }

    /// Returns when a feature was last seen to pass, here or by its evidence.
    pub(super) fn seen(&self, feature: &Feature) -> Option<Time> {
        feature.verified_at.max(self.0.get(&feature.id).map(|pass| pass.at))
    }
}

/// Records that a feature passed. A failure to write it only costs another run of its tests.
pub(super) fn record(project: &Project, id: &str, at: Time, code_tree: &str) {
    let write = || -> crate::error::Result<()> {
        let _guard = project.files().lock()?;
        let Probes(mut all) = Probes::read(project);
        all.insert(id.to_owned(), Pass { at, code_tree: code_tree.to_owned() });
        let path = path(project);
        let bytes = serde_json::to_vec(&all).unwrap_or_default();
        shared::write(&path, &bytes).map_err(|error| crate::error::Error::io("cannot write", &path, &error))
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "the pass of a feature is not kept");
    }
}

fn path(project: &Project) -> PathBuf {
    project.root().join(LOCAL).join(FILE)
}
