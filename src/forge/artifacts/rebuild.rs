//! The state of an artifact's file, and entries that are made from files.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::entry::{Kind, ProjectArtifact, media_type};
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
}

/// Returns the state of the file of an artifact.
pub(super) fn state(project: &Project, entry: &ProjectArtifact) -> Result<State> {
    Ok(match project.files().read(&entry.path)? {
        None => State::Missing,
        Some(bytes) if triv::sch(&bytes) == entry.triv.sch() => State::Ok,
        Some(_) => State::Changed,
    })
}

/// Adds an entry for each file without one whose content matches its name. The same file always
/// gets the same name.
pub(super) fn add_unindexed(project: &Project, entries: &mut Vec<ProjectArtifact>) -> Result<()> {
    let known: BTreeSet<String> = entries.iter().map(|entry| entry.path.clone()).collect();
    for kind in Kind::ALL {
        let folder = kind.folder();
        for file in project
            .files()
            .list(&folder)?
            .into_iter()
            .filter(|file| !file.folder)
        {
            let path = format!("{folder}/{}", file.name);
            let Ok(name) = FileName::parse(&file.name) else {
                continue;
            };
            if known.contains(&path) {
                continue;
            }
            let Some(bytes) = project.files().read(&path)? else {
                continue;
            };
            if !triv::sch(&bytes).starts_with(name.short()) {
                continue;
            }
            let context = Context {
                kind: kind.as_str(),
                session: "-",
                agent: "-",
                key: None,
                head: None,
                name: name.slug(),
            };
            let hash = Sha256::digest(&bytes);
            let instance = hash.first_chunk::<10>().copied().unwrap_or_default();
            entries.push(ProjectArtifact {
                triv: Triv::new(
                    &bytes,
                    &context,
                    uuid::Builder::from_unix_timestamp_millis(0, &instance).into_uuid(),
                )?,
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
                sha256: Some(helmdeck_core::hex(&hash)),
                rebuilt: true,
                other: Members::default(),
            });
        }
    }
    Ok(())
}
