//! The index of the artifacts of this clone: who made them, when, and from what.
//!
//! It is append-only, and git does not have it. A file without a line, such as one that git
//! brought, gets an entry that is made from the file. A line that cannot be read is skipped.

use std::collections::BTreeSet;

use super::entry::ProjectArtifact;
use super::rebuild;
use crate::error::Result;
use crate::layout::ARTIFACT_INDEX;
use crate::project::Project;
use crate::triv::FileName;

/// Maximum number of bytes of a line that are parsed: 1 MiB.
const LINE_MAX: usize = 1 << 20;

/// Returns the entries of the index: of lines for the same name, the last, and those of the files
/// without a line.
pub(crate) fn read(project: &Project) -> Result<Vec<ProjectArtifact>> {
    let files = project.files();
    let mut entries = Vec::new();
    for path in files.parts(ARTIFACT_INDEX)? {
        let bytes = files.read(&path)?.unwrap_or_default();
        entries.extend(bytes.split(|byte| *byte == b'\n').filter_map(parse));
    }
    let mut seen = BTreeSet::new();
    entries.reverse();
    entries.retain(|entry| seen.insert(entry.triv.clone()));
    entries.reverse();
    rebuild::add_unindexed(project, &mut entries)?;
    Ok(entries)
}

/// Parses a line. The path of an entry is that of a file in the folder of its kind.
fn parse(line: &[u8]) -> Option<ProjectArtifact> {
    let entry: ProjectArtifact = serde_json::from_slice(line)
        .ok()
        .filter(|_| line.len() <= LINE_MAX)?;
    let file = entry
        .path
        .strip_prefix(&entry.kind.folder())
        .and_then(|rest| rest.strip_prefix('/'));
    file.is_some_and(|file| FileName::parse(file).is_ok())
        .then_some(entry)
}
