//! Files of the index: with a file for each entry of the memory, one for each clone and branch.
//!
//! A clone adds lines only to the file of the branch that is checked out. So two branches never change one file, and
//! any merge keeps the lines of both.

use std::fs;

use sha2::{Digest as _, Sha256};

use crate::error::Result;
use crate::layout::{ARTIFACT_INDEX, ARTIFACTS};
use crate::project::Project;
use crate::shared;

/// Name of the file with the id of this clone, below the folder shared by all work trees.
const CLONE: &str = "forge/clone-id";
/// Length of the part of a file name that stands for a clone and a branch, in characters.
const TAG: usize = 8;

/// Says whether a file in the folder of the artifacts is one of the index.
pub(crate) fn is_index(name: &str) -> bool {
    parse(name).is_some()
}

/// Returns the files of the index that exist; of each list, the oldest part first.
///
/// # Errors
/// `Refused`, `Failed`.
pub(crate) fn index_files(project: &Project) -> Result<Vec<String>> {
    let entries = project.files().list(ARTIFACTS)?;
    let mut names: Vec<_> =
        entries.iter().filter(|entry| !entry.folder).filter_map(|entry| parse(&entry.name)).collect();
    names.sort_unstable();
    let path = |(list, number): (&str, u32)| match number {
        u32::MAX => format!("{ARTIFACTS}/{list}.jsonl"),
        number => format!("{ARTIFACTS}/{list}.{number}.jsonl"),
    };
    Ok(names.into_iter().map(path).collect())
}

/// Returns the file to which this clone adds lines.
pub(super) fn own(project: &Project) -> String {
    let tag = project.config().files.per_entry.then(|| tag(project)).flatten();
    tag.map_or_else(|| ARTIFACT_INDEX.to_owned(), |tag| format!("{ARTIFACTS}/index-{tag}.jsonl"))
}

/// Returns the list that a file belongs to, without its ending, and which part it is. The newest has no number.
fn parse(name: &str) -> Option<(&str, u32)> {
    let stem = name.strip_suffix(".jsonl")?;
    let (list, number) = match stem.split_once('.') {
        None => (stem, u32::MAX),
        Some((list, number)) => {
            (list, number.parse().ok().filter(|parsed: &u32| *parsed != u32::MAX && parsed.to_string() == number)?)
        }
    };
    let is_tag = |tag: &str| tag.len() == TAG && tag.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (list == "index" || list.strip_prefix("index-").is_some_and(is_tag)).then_some((list, number))
}

fn tag(project: &Project) -> Option<String> {
    let git = project.git().ok()?;
    let path = git.common_dir().join(CLONE);
    let id = shared::read(&path).unwrap_or_else(|| {
        let new = project.environment().uuid().to_string().into_bytes();
        if let Err(error) = shared::write(&path, &new) {
            tracing::warn!(path = %path.display(), %error, "the id of this clone is not kept");
        }
        new
    });
    // Without a branch, the work tree stands for it.
    let head = fs::read(git.git_dir().join("HEAD")).ok().filter(|head| head.starts_with(b"ref: "));
    let branch = head.unwrap_or_else(|| git.root().display().to_string().into_bytes());
    let hash = helmdeck_core::hex(&Sha256::digest([id, branch].concat()));
    hash.get(..TAG).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_index_files_are_known() {
        for name in ["index.jsonl", "index.2.jsonl", "index-0a1b2c3d.jsonl", "index-0a1b2c3d.11.jsonl"] {
            assert!(is_index(name), "{name}");
        }
        for name in ["index.json", "index.02.jsonl", "index-0a1b.jsonl", "index-0A1B2C3D.jsonl", "index.1.2.jsonl"] {
            assert!(!is_index(name), "{name}");
        }
    }
}
