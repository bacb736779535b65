//! Numbers of new features.
//!
//! The highest number of each prefix is stored in the folder shared by all work trees, so that two
//! of them do not give one id to two features. Two clones may: then the later feature gets another
//! one where both are.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::file::{FeaturesFile, split_id};
use crate::git::Git;
use crate::shared;

/// Name of the file, below the folder shared by all work trees.
const FILE: &str = "forge/feature-numbers.json";

/// The highest number of each prefix.
///
/// It is only a hint: without it, two branches may use the same id, and their merge then reports
/// it.
#[derive(Debug)]
pub(crate) struct Numbers {
    path: Option<PathBuf>,
    highest: BTreeMap<String, u64>,
}

impl Numbers {
    /// Reads the numbers. To assign one, hold the common lock until they are written.
    pub(crate) fn read(git: Option<&Git>) -> Self {
        let path = git.map(|git| git.common_dir().join(FILE));
        let read = |path: &PathBuf| serde_json::from_slice(&shared::read(path)?).ok();
        Self {
            highest: path.as_ref().and_then(read).unwrap_or_default(),
            path,
        }
    }

    /// Returns the next id with a prefix, which no feature has or ever had.
    pub(crate) fn next_id(&self, file: &FeaturesFile, prefix: &str) -> String {
        let used = file
            .features
            .iter()
            .map(|feature| &feature.id)
            .chain(&file.retired);
        let used = used
            .filter_map(|id| split_id(id))
            .filter(|(other, _)| *other == prefix)
            .map(|(_, number)| number);
        let given = used.chain(self.highest.get(prefix).copied());
        let highest = given.max().unwrap_or(0);
        format!("{prefix}-{:03}", highest.saturating_add(1))
    }

    /// Records that an id was assigned.
    pub(crate) fn note(&mut self, id: &str) {
        if let Some((prefix, number)) = split_id(id) {
            let highest = self.highest.entry(prefix.to_owned()).or_default();
            *highest = number.max(*highest);
        }
    }

    /// Writes the numbers, durably and atomically.
    pub(crate) fn write(&self) {
        let Some(path) = &self.path else { return };
        let write = || shared::write(path, &serde_json::to_vec(&self.highest)?);
        if let Err(error) = write() {
            tracing::warn!(path = %path.display(), %error, "the highest numbers of features are not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Document as _;
    use crate::git::fixture::Repository;

    #[test]
    fn a_number_is_given_once_in_all_work_trees() {
        let repository = Repository::new();
        let git = repository.git();
        let mut file = FeaturesFile::skeleton();
        file.retired = vec!["A-004".into(), "B-009".into(), "A-004x".into()];
        let mut numbers = Numbers::read(Some(&git));
        assert_eq!(numbers.next_id(&file, "A"), "A-005");
        numbers.note("A-007");
        numbers.note("A-006");
        numbers.write();
        let again = Numbers::read(Some(&git));
        assert_eq!(
            (again.next_id(&file, "A"), again.next_id(&file, "B")),
            ("A-008".into(), "B-010".into())
        );
        assert_eq!(Numbers::read(None).next_id(&file, "A"), "A-005");
        std::fs::write(git.common_dir().join(FILE), " ".repeat(2 << 20)).unwrap();
        assert_eq!(
            Numbers::read(Some(&git)).next_id(&file, "A"),
            "A-005",
            "one that cannot be read is none"
        );
    }
}
