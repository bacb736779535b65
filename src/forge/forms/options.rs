//! Options that come from the project.

use std::collections::BTreeSet;

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
        OptionSource::Skills => Skills::new(project)
            .list()?
            .into_iter()
            .map(|skill| skill.name)
            .collect(),
        OptionSource::Features => Features::new(project)
            .read()?
            .features
            .into_iter()
            .map(|feature| feature.id)
            .collect(),
        OptionSource::Labels => {
            let issues = project.issues().read()?.issues;
            let labels: BTreeSet<String> =
                issues.into_iter().flat_map(|issue| issue.labels).collect();
            labels.into_iter().collect()
        }
    })
}

/// Returns the names of the crates, from the manifests of cargo: nothing is run.
fn crates(project: &Project) -> Result<Vec<String>> {
    let name =
        |manifest: &toml::Table| Some(manifest.get("package")?.get("name")?.as_str()?.to_owned());
    let root = manifest(project, "Cargo.toml")?;
    let listed = |what: &str| -> Vec<&str> {
        let all = root
            .get("workspace")
            .and_then(|workspace| workspace.get(what)?.as_array());
        all.into_iter()
            .flatten()
            .filter_map(|one| Some(one.as_str()?.trim_end_matches('/')))
            .collect()
    };
    let mut folders = BTreeSet::new();
    for member in listed("members") {
        match member.strip_suffix('*') {
            None => drop(folders.insert(member.to_owned())),
            // `crates/*`, or `*`: the folders of a folder.
            Some(parent)
                if !parent.contains('*') && (parent.is_empty() || parent.ends_with('/')) =>
            {
                let place = if parent.is_empty() {
                    "."
                } else {
                    parent.trim_end_matches('/')
                };
                let below = project
                    .files()
                    .list(place)?
                    .into_iter()
                    .filter(|entry| entry.folder);
                folders.extend(below.map(|entry| format!("{parent}{}", entry.name)));
            }
            Some(_) => {}
        }
    }
    for excluded in listed("exclude") {
        folders.remove(excluded);
    }
    let mut names: BTreeSet<String> = name(&root).into_iter().collect();
    for folder in folders.iter().take(CRATES) {
        // A path that leads out of the project is none of it.
        names.extend(name(
            &manifest(project, &format!("{folder}/Cargo.toml")).unwrap_or_default(),
        ));
    }
    Ok(names.into_iter().collect())
}

/// Reads a manifest; an empty one if it is absent or not read, which cargo reports.
fn manifest(project: &Project, path: &str) -> Result<toml::Table> {
    let bytes = project.files().read(path)?.unwrap_or_default();
    Ok(toml::from_str(&String::from_utf8_lossy(&bytes)).unwrap_or_default())
}
