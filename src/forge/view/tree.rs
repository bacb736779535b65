//! The files of the memory, each with its age and its damage.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ListPage, PageRequest};
use crate::error::Result;
use crate::files::{FolderEntry, etag};
use crate::health::MEMORY_COLOURS;
use crate::issues::Issue;
use crate::layout::{FORGE, ISSUES, LOCAL, PROGRESS};
use crate::progress::Progress;
use crate::project::Project;
use crate::repair::{Damaged, damaged_files};
use crate::time::Time;

/// Maximum number of files that are listed.
const MOST: usize = 20_000;

/// File of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeFile {
    /// Its path, below the root.
    pub path: String,
    /// The folder it belongs to: `long-term`, `short-term`, `artifacts`, `linear`, `git`. None for
    /// other files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The colour of that folder. It says nothing about health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colour: Option<String>,
    /// Its size in bytes.
    pub bytes: u64,
    /// Version tag of its bytes. None if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// When the file was changed last. A checkout changes it too.
    pub modified_at: Time,
    /// The time of its newest entry, if its entries have times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_entry_at: Option<Time>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damaged>,
}

/// Lists the files below `.forge/`, by path. What belongs to this clone alone is left out.
///
/// # Errors
/// `Usage` for an unknown `after`; `Failed` if a folder cannot be read.
pub fn tree(project: &Project, wanted: &PageRequest) -> Result<ListPage<TreeFile>> {
    let mut all = Vec::new();
    gather(project, FORGE, &mut all)?;
    let mut damage: HashMap<String, Damaged> = damaged_files(project)?
        .into_iter()
        .map(|damaged| (damaged.path.clone(), damaged))
        .collect();
    // A file that was lost is damaged and not there.
    for path in damage.keys().filter(|path| !path.starts_with(LOCAL)) {
        if !all.iter().any(|(known, _)| known == path) {
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            let lost = FolderEntry {
                name,
                folder: false,
                bytes: 0,
                modified: project.environment().now(),
            };
            all.push((path.clone(), lost));
        }
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let ListPage { items, total, next } = ListPage::of(all, wanted, |(path, _)| path.clone())?;
    let shown = |(path, entry): (String, FolderEntry)| {
        let damage = damage.remove(&path);
        describe(project, path, &entry, damage)
    };
    Ok(ListPage {
        items: items.into_iter().map(shown).collect(),
        total,
        next,
    })
}

fn gather(project: &Project, folder: &str, all: &mut Vec<(String, FolderEntry)>) -> Result<()> {
    for entry in project.files().list(folder)? {
        let path = format!("{folder}/{}", entry.name);
        if path == LOCAL || all.len() >= MOST {
            continue;
        }
        if entry.folder {
            gather(project, &path, all)?;
        } else {
            all.push((path, entry));
        }
    }
    Ok(())
}

fn describe(
    project: &Project,
    path: String,
    entry: &FolderEntry,
    damage: Option<Damaged>,
) -> TreeFile {
    let bytes = project.files().read(&path).ok().flatten();
    let folder = folder_of(&path);
    TreeFile {
        folder: folder.map(|(name, _)| name.to_owned()),
        colour: folder.map(|(_, colour)| colour.to_owned()),
        bytes: entry.bytes,
        etag: bytes.as_deref().map(etag),
        modified_at: entry.modified,
        last_entry_at: last_entry(project, &path).filter(|_| damage.is_none()),
        damage,
        path,
    }
}

/// Returns the name and the colour of the folder that a file belongs to.
fn folder_of(path: &str) -> Option<(&'static str, &'static str)> {
    let rest = path.strip_prefix(FORGE)?.strip_prefix('/')?;
    let rest = rest.strip_prefix("memory/").unwrap_or(rest);
    let (first, _) = rest.split_once('/')?;
    MEMORY_COLOURS.into_iter().find(|(name, _)| *name == first)
}

fn last_entry(project: &Project, path: &str) -> Option<Time> {
    match path {
        PROGRESS => Progress::new(project).read().ok()??.entries.last()?.at,
        _ if path.starts_with(ISSUES) => {
            project
                .files()
                .load_at::<Issue>(path)
                .ok()??
                .value
                .updated_at
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{ARTIFACTS, SHORT_TERM};

    #[test]
    fn files_have_the_colour_of_their_folder() {
        assert_eq!(
            folder_of(crate::layout::KNOWLEDGE),
            Some(("long-term", "#4CAF50"))
        );
        assert_eq!(
            folder_of(&format!("{SHORT_TERM}/focus.json")),
            Some(("short-term", "#2196F3"))
        );
        assert_eq!(
            folder_of(&format!("{ARTIFACTS}/docs/note.md")),
            Some(("artifacts", "#9C27B0"))
        );
        assert_eq!(
            folder_of(".forge/git/branches.json"),
            Some(("git", "#607D8B"))
        );
        assert_eq!(
            (
                folder_of(".forge/config.toml"),
                folder_of(".forge/skills/a/skill.toml")
            ),
            (None, None)
        );
    }
}
