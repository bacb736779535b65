//! `export`: the documents of the long-term memory as RFC-9060 has them, made from the entries.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Category, Error, Result};
use crate::features::{Features, FeaturesFile};
use crate::json;
use crate::knowledge::{Knowledge, KnowledgeFile};
use crate::project::Project;

/// The documents of the long-term memory, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Export {
    /// `features.json`.
    pub features: FeaturesFile,
    /// `knowledge.json`.
    pub knowledge: KnowledgeFile,
}

/// Makes the documents from their entries. Changes nothing.
///
/// # Errors
/// `Corrupt` if an entry is damaged.
pub fn export(project: &Project) -> Result<Export> {
    Ok(Export {
        features: Features::new(project).read()?,
        knowledge: Knowledge::new(project).read()?,
    })
}

impl Export {
    /// Writes the documents into a folder, which is created, and returns their paths.
    ///
    /// # Errors
    /// `Failed` if a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let io = |error: &std::io::Error| Error::io("cannot write", folder, error);
        let print =
            |error: serde_json::Error| Error::new(Category::Failed, "E_INVALID", error.to_string());
        let documents = [
            ("features.json", json::print(&self.features).map_err(print)?),
            (
                "knowledge.json",
                json::print(&self.knowledge).map_err(print)?,
            ),
        ];
        std::fs::create_dir_all(folder).map_err(|error| io(&error))?;
        let write = |(name, bytes): &(&str, Vec<u8>)| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(|error| io(&error))?;
            Ok(path)
        };
        documents.iter().map(write).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Add;
    use crate::fixture::Fixture;
    use crate::knowledge::{Learning, What};

    #[test]
    fn documents_are_made_from_entries() {
        let fixture = Fixture::new();
        let add = |name: &str| Add {
            name: name.to_owned(),
            tests: vec!["a::*".to_owned()],
            ..Add::default()
        };
        for name in ["One", "Two"] {
            Features::new(&fixture.project)
                .add(&add(name), None)
                .unwrap();
        }
        let what = What::Successful {
            context: "c".to_owned(),
            approach: "a".to_owned(),
        };
        Knowledge::new(&fixture.project)
            .add(&Learning::new(what), None)
            .unwrap();

        let made = export(&fixture.project).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let paths = made.write(&folder.path().join("new")).unwrap();
        let features: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&paths[0]).unwrap()).unwrap();
        let names: Vec<_> = features["features"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["name"])
            .collect();
        assert_eq!(names, ["One", "Two"]);
        let knowledge: KnowledgeFile =
            serde_json::from_slice(&std::fs::read(&paths[1]).unwrap()).unwrap();
        assert_eq!(knowledge, made.knowledge);
        assert_eq!(knowledge.patterns.successful[0].approach, "a");
    }
}
