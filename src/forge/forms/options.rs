//! Options that come from the project.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Choice, Field, OptionSource};
use crate::error::Result;
use crate::features::Features;
use crate::project::Project;
use crate::skills::Skills;

/// Maximum number of crates that are looked at.
const CRATES: usize = 1_000;

/// Returns the options of a field, each once, in the order of the form.
///
/// # Errors
/// `Corrupt` if a file of the project is damaged.
pub(super) fn of(project: &Project, field: &Field) -> Result<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    for choice in &field.options {
        let more = match choice {
            Choice::One(one) => vec![one.clone()],
            Choice::From { from } => source(project, *from)?,
        };
        for one in more {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

fn source(project: &Project, source: OptionSource) -> Result<Vec<String>> {
    Ok(match source {
        OptionSource::WorkspaceCrates => crates(project)?,
        OptionSource::Skills => Skills::new(project).list()?.into_iter().map(|skill| skill.name).collect(),
        OptionSource::Features => {
            Features::new(project).read()?.features.into_iter().map(|feature| feature.id).collect()
        }
        OptionSource::Labels => {
            let issues = project.issues().read()?.issues;
            let labels: BTreeSet<String> = issues.into_iter().flat_map(|issue| issue.labels).collect();
            labels.into_iter().collect()
        }
    })
}

#[derive(Default, Deserialize)]
struct Manifest {
    package: Option<Package>,
    workspace: Option<Workspace>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

#[derive(Deserialize)]
struct Workspace {
    #[serde(default)]
    members: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

/// Returns the names of the crates, from the manifests of cargo: nothing is run.
fn crates(project: &Project) -> Result<Vec<String>> {
    let root = manifest(project, "Cargo.toml")?;
    let mut names: BTreeSet<String> = root.package.into_iter().map(|package| package.name).collect();
    let Some(workspace) = root.workspace else { return Ok(names.into_iter().collect()) };
    let mut folders = BTreeSet::new();
    for member in &workspace.members {
        match member.trim_end_matches('/').rsplit_once('/') {
            _ if !member.contains('*') => {
                folders.insert(member.trim_end_matches('/').to_owned());
            }
            // `crates/*`: the folders of a folder.
            Some((parent, "*")) if !parent.contains('*') => {
                let below = project.files().list(parent)?.into_iter().filter(|entry| entry.folder);
                folders.extend(below.map(|entry| format!("{parent}/{}", entry.name)));
            }
            None if member == "*" => {
                let below = project.files().list(".").unwrap_or_default().into_iter().filter(|entry| entry.folder);
                folders.extend(below.map(|entry| entry.name));
            }
            _ => {}
        }
    }
    folders.retain(|folder| !workspace.exclude.contains(folder));
    for folder in folders.iter().take(CRATES) {
        // A path that leads out of the project is none of it.
        let found = manifest(project, &format!("{folder}/Cargo.toml")).unwrap_or_default();
        names.extend(found.package.map(|package| package.name));
    }
    Ok(names.into_iter().collect())
}

/// Reads a manifest; an empty one if it is absent or not read, which cargo reports.
fn manifest(project: &Project, path: &str) -> Result<Manifest> {
    let bytes = project.files().read(path)?.unwrap_or_default();
    Ok(toml::from_str(&String::from_utf8_lossy(&bytes)).unwrap_or_default())
}
