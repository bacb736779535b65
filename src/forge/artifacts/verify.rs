//! Verifies artifacts against the index, and rebuilds the index.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::entry::{Kind, ProjectArtifact, media_type};
use super::index::{BadLine, Index};
use super::{Artifacts, append};
use crate::error::Result;
use crate::json::Members;
use crate::project::Project;
use crate::triv::{self, Context, FileName, Triv};

/// How an artifact's file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The content is as stored.
    Ok,
    /// It is something else.
    Changed,
    /// It is gone.
    Missing,
    /// The index does not know it.
    Unindexed,
    /// It was removed by the garbage collection.
    Removed,
}

/// An artifact's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Checked {
    /// The file, below the root.
    pub path: String,
    /// Its state.
    pub state: State,
    /// Its newest name; none if the index does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triv: Option<Triv>,
}

/// Result of the verification of artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Verified {
    /// Whether every file is as stored, and every line of the index is well-formed.
    pub ok: bool,
    /// Every file that exists or should exist, by its path.
    pub artifacts: Vec<Checked>,
    /// Malformed lines of the index.
    pub bad_lines: Vec<BadLine>,
    /// How long the files are together, in bytes.
    pub bytes: u64,
    /// Whether that is more than `[artifacts] total_bytes` (500 MiB unless configured otherwise).
    pub over: bool,
}

/// Lines were added for files the index did not know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Rebuilt {
    /// How many lines were added, each marked `rebuilt`.
    pub added: usize,
    /// Files whose names are not those of artifacts, or not of what they hold.
    pub left: Vec<String>,
}

impl Artifacts<'_> {
    /// Compares every artifact with its name, or those whose path has a text in it.
    ///
    /// # Errors
    /// The errors of reading the files.
    pub fn verify(&self, only: Option<&str>) -> Result<Verified> {
        let (index, _) = Index::read(self.project)?;
        let mut newest: BTreeMap<&str, &ProjectArtifact> = BTreeMap::new();
        for entry in &index.entries {
            let known = newest.entry(&entry.path).or_insert(entry);
            if entry.created_at >= known.created_at {
                *known = entry;
            }
        }
        let mut artifacts = Vec::new();
        for (path, entry) in &newest {
            artifacts.push(Checked {
                path: (*path).to_owned(),
                state: state(self.project, entry)?,
                triv: Some(entry.triv.clone()),
            });
        }
        for path in files(self.project)? {
            if !newest.contains_key(path.as_str()) {
                artifacts.push(Checked { path, state: State::Unindexed, triv: None });
            }
        }
        artifacts.retain(|checked| only.is_none_or(|only| checked.path.contains(only)));
        artifacts.sort_by(|a, b| a.path.cmp(&b.path));
        let bytes = self.total()?;
        let fine = |checked: &Checked| matches!(checked.state, State::Ok | State::Removed);
        Ok(Verified {
            ok: artifacts.iter().all(fine) && index.bad.is_empty(),
            artifacts,
            bad_lines: index.bad,
            bytes,
            over: bytes > self.project.config().artifacts.total_bytes,
        })
    }

    /// Rebuilds the index: adds lines for the unindexed files, which are all files if it was lost.
    ///
    /// Metadata that only the index had stays lost.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged, `Paused`, `Locked`.
    pub fn rebuild(&self) -> Result<Rebuilt> {
        self.project.check_not_paused()?;
        let _guard = self.project.files().lock()?;
        let (index, _) = Index::read(self.project)?;
        index.check_sound(self.project)?;
        let added = add_unindexed(self.project, &index)?;
        let known: BTreeSet<String> =
            Index::read(self.project)?.0.entries.into_iter().map(|entry| entry.path).collect();
        let left = files(self.project)?.into_iter().filter(|path| !known.contains(path)).collect();
        Ok(Rebuilt { added, left })
    }
}

/// Returns the state of the file of an artifact.
pub(super) fn state(project: &Project, entry: &ProjectArtifact) -> Result<State> {
    Ok(match project.files().read(&entry.path)? {
        None if entry.removed_at.is_some() => State::Removed,
        None => State::Missing,
        Some(bytes) if bytes.is_empty() && entry.removed_at.is_some() => State::Removed,
        Some(bytes) if triv::sch(&bytes) == entry.triv.sch() => State::Ok,
        Some(_) => State::Changed,
    })
}

/// Returns every file in the folders of the artifacts.
fn files(project: &Project) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let folder = kind.folder();
        let files = project.files().list(&folder)?.into_iter().filter(|file| !file.folder);
        // Git does not keep an empty folder without one.
        let files = files.filter(|file| file.name != ".gitkeep");
        all.extend(files.map(|file| format!("{folder}/{}", file.name)));
    }
    Ok(all)
}

/// Adds an index line for each unindexed file whose content matches its name.
///
/// Returns how many lines were added.
pub(super) fn add_unindexed(project: &Project, index: &Index) -> Result<usize> {
    let known: BTreeSet<&str> = index.entries.iter().map(|entry| entry.path.as_str()).collect();
    let mut added = 0;
    for kind in Kind::ALL {
        let folder = kind.folder();
        for file in project.files().list(&folder)?.into_iter().filter(|file| !file.folder) {
            let path = format!("{folder}/{}", file.name);
            let Ok(name) = FileName::parse(&file.name) else { continue };
            if known.contains(path.as_str()) {
                continue;
            }
            let Some(bytes) = project.files().read(&path)? else { continue };
            if !triv::sch(&bytes).starts_with(name.short()) {
                continue;
            }
            let context =
                Context { kind: kind.as_str(), session: "-", agent: "-", key: None, head: None, name: name.slug() };
            append(
                project,
                &ProjectArtifact {
                    triv: Triv::new(&bytes, &context, project.environment().uuid())?,
                    path,
                    kind,
                    name: name.slug().to_owned(),
                    media_type: media_type(name.slug(), &bytes).to_owned(),
                    bytes: bytes.len() as u64,
                    created_at: file.modified,
                    session: None,
                    agent: None,
                    linear: None,
                    skill: None,
                    commit: None,
                    produced_from: Vec::new(),
                    supersedes: None,
                    sha256: None,
                    rebuilt: true,
                    removed_at: None,
                    other: Members::default(),
                },
            )?;
            added += 1;
        }
    }
    Ok(added)
}
