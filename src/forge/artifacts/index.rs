//! The append-only index of the artifacts.
//!
//! A line that was torn by a crash is skipped and reported, and the next one begins after a line break. Any other
//! malformed line is damage: the valid lines are still read, but nothing is added before the file is repaired.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::entry::ProjectArtifact;
use crate::error::Result;
use crate::files::{Damage, Unreadable};
use crate::layout::ARTIFACT_INDEX;
use crate::project::Project;
use crate::triv::FileName;

/// Maximum number of bytes of a line that are parsed: 1 MiB.
const LINE_MAX: usize = 1 << 20;

#[cfg(test)]
thread_local! {
    /// How often this thread has read an index.
    pub(crate) static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Content of the index.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Index {
    /// Its lines, in their order; of lines for the same name, the last.
    pub entries: Vec<ProjectArtifact>,
    /// Malformed lines.
    pub bad: Vec<BadLine>,
    /// The file of the first bad line that is not only torn, with that line.
    damaged: Option<(String, BadLine)>,
}

/// A malformed line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BadLine {
    /// Which line, from 1.
    pub line: usize,
    /// Whether it is the beginning of a good one: a crash tore it, and nothing else is wrong.
    pub torn: bool,
    /// What is wrong.
    pub what: String,
}

impl Index {
    /// Reads any bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut index = Self::default();
        index.add(ARTIFACT_INDEX, bytes);
        index.once()
    }

    fn add(&mut self, path: &str, bytes: &[u8]) {
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match read_line(line) {
                Ok(entry) => self.entries.push(entry),
                Err((torn, what)) => {
                    let bad = BadLine { line: at + 1, torn, what };
                    if !torn && self.damaged.is_none() {
                        self.damaged = Some((path.to_owned(), bad.clone()));
                    }
                    let older = path != ARTIFACT_INDEX;
                    let what = if older { format!("in {path}: {}", bad.what) } else { bad.what };
                    self.bad.push(BadLine { what, ..bad });
                }
            }
        }
    }

    /// Leaves the last of lines for the same name: a merge may bring the same line twice.
    ///
    /// The line of a removal is the last one, in whatever file it is.
    fn once(mut self) -> Self {
        let mut seen = BTreeSet::new();
        self.entries.sort_by_key(|entry| entry.removed_at.is_some());
        self.entries.reverse();
        self.entries.retain(|entry| seen.insert(entry.triv.clone()));
        self.entries.reverse();
        self
    }

    /// Reads the index of a project; an absent one is empty.
    ///
    /// # Errors
    /// The errors of reading the file.
    pub(crate) fn read(project: &Project) -> Result<(Self, bool)> {
        #[cfg(test)]
        READ.set(READ.get() + 1);
        let mut index = Self::default();
        let parts = super::index_files(project)?;
        for path in &parts {
            index.add(path, &project.files().read(path)?.unwrap_or_default());
        }
        Ok((index.once(), !parts.is_empty()))
    }

    /// Refuses an index with damage other than torn lines.
    ///
    /// # Errors
    /// `Corrupt` with the first such line.
    pub(super) fn check_sound(&self, project: &Project) -> Result<()> {
        let Some((path, bad)) = &self.damaged else { return Ok(()) };
        let bytes = project.files().read(path)?.unwrap_or_default();
        let damage = Damage { line: bad.line, column: 1, what: bad.what.clone() };
        Err(project.files().unreadable(path, &bytes, Unreadable::Damaged(damage)))
    }
}

fn read_line(line: &[u8]) -> Result<ProjectArtifact, (bool, String)> {
    if line.len() > LINE_MAX {
        return Err((false, "expected a line of at most 1 MiB".to_owned()));
    }
    let entry: ProjectArtifact = serde_json::from_slice(line).map_err(|error| {
        // A line torn within a character is torn, too.
        let torn = error.is_eof() || std::str::from_utf8(line).is_err_and(|error| error.error_len().is_none());
        let torn = torn && line.starts_with(b"{");
        (
            torn,
            if torn {
                "the line is torn".to_owned()
            } else {
                crate::files::in_words_of_json(&format!("expected an artifact: {error}"))
            },
        )
    })?;
    let file = entry.path.strip_prefix(&entry.kind.folder()).and_then(|rest| rest.strip_prefix('/'));
    match file.map(FileName::parse) {
        Some(Ok(_)) => Ok(entry),
        _ => Err((false, format!("expected a file of {}, found {:?}", entry.kind.folder(), entry.path))),
    }
}
