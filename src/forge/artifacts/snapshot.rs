//! Snapshot of the context in which an issue was begun.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Artifacts, Kind, Put, Stored};
use crate::committed;
use crate::error::{Category, Error, Result};
use crate::features::FeaturesFile;
use crate::focus::Focus;
use crate::json::{self, Members};
use crate::knowledge::KnowledgeFile;
use crate::layout::FOCUS;

/// In which state everything is. The same state is the same artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The version of its shape: `1.0`.
    pub schema_version: String,
    /// What it is: `context_snapshot`.
    pub kind: String,
    /// The commit that was checked out.
    pub head: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// The etag of each file of the memory; `null` if it is absent.
    pub etags: BTreeMap<String, Option<String>>,
    /// The focus, which git does not keep.
    pub focus: Option<Focus>,
    /// Members this program does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Artifacts<'_> {
    /// Stores the state of knowledge, features, focus and git as a report.
    ///
    /// An issue refers to it by its name, in `context_snapshot`.
    ///
    /// # Errors
    /// As [`Artifacts::put`]; `Corrupt` if the focus is damaged.
    pub fn snapshot(&self) -> Result<Stored> {
        let files = self.project.files();
        let guard = files.lock()?;
        let mut etags = BTreeMap::new();
        let focus = crate::focus::read(files, FOCUS)?;
        etags.insert(
            "features".to_owned(),
            files.load::<FeaturesFile>()?.map(|loaded| loaded.etag),
        );
        etags.insert(
            "focus".to_owned(),
            focus.as_ref().map(|loaded| loaded.etag.clone()),
        );
        etags.insert(
            "knowledge".to_owned(),
            files.load::<KnowledgeFile>()?.map(|loaded| loaded.etag),
        );
        let focus = focus.map(|loaded| loaded.value);
        drop(guard);
        let snapshot = Snapshot {
            schema_version: "1.0".to_owned(),
            kind: "context_snapshot".to_owned(),
            head: committed::head(self.project),
            branch: committed::branch(self.project),
            etags,
            focus,
            other: Members::default(),
        };
        let bytes = json::print(&snapshot)
            .map_err(|error| Error::new(Category::Failed, "E_JSON", error.to_string()))?;
        self.put(&bytes, &Put::new(Kind::Reports, "context_snapshot.json"))
    }
}
