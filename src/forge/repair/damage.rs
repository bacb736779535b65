//! Damaged files of the memory, for doctor, health and commits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::{Wrong, check, form};
use crate::documents::KINDS;
use crate::error::{Category, Error, Result};
use crate::files::{Files, LOST, back};
use crate::forms::Forms;
use crate::git::Git;
use crate::layout::{
    ARTIFACT_INDEX, BRANCHES, COMMENTS, CONFIG, EVENTS_OUTBOX, EXCEPTIONS, FEATURES,
    FEATURES_ENTRIES, HEALTH, JOURNAL, KNOWLEDGE, KNOWLEDGE_ENTRIES, PROGRESS, SESSIONS,
};
use crate::project::Project;
use crate::skills::Skills;

/// Folders of entries, which can be lost.
const FOLDERS: [&str; 2] = [KNOWLEDGE_ENTRIES, FEATURES_ENTRIES];

/// Extent of the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// None: a newer program wrote the file.
    Newer,
    /// The whole file is unreadable.
    Whole,
    /// Some lines; the others are readable.
    Lines,
    /// Harmless: a cache that is rebuilt.
    Harmless,
}

/// A damaged file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damaged {
    /// The file, below the root.
    pub path: String,
    /// The extent of the damage.
    pub extent: Extent,
    /// The position, and what was expected.
    pub detail: String,
    /// A command that shows the possible replacements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Damaged {
    /// Makes the error of a command that cannot continue because of the damage.
    pub(crate) fn error(&self) -> Error {
        let error = Error::new(
            Category::Corrupt,
            "E_CORRUPT",
            format!("{}: {}", self.path, self.detail),
        );
        let error =
            error.hint("nothing was written over it, and nothing will be until it is repaired");
        match &self.next {
            Some(next) => error.next(next),
            None => error,
        }
    }
}

/// Returns the paths of all damaged memory files. A file of a newer program does not count.
///
/// # Errors
/// `Failed` if a folder cannot be read.
pub fn damaged(project: &Project) -> Result<Vec<String>> {
    Ok(damaged_files(project)?
        .into_iter()
        .map(|one| one.path)
        .collect())
}

/// Returns all damaged memory files, with their damage.
///
/// # Errors
/// As [`damaged`].
pub fn damaged_files(project: &Project) -> Result<Vec<Damaged>> {
    Ok(all_damage(project)?
        .into_iter()
        .filter(|one| one.extent != Extent::Newer)
        .collect())
}

/// Returns the damage of all files: also of those of a newer program, and of skills and forms.
pub(crate) fn all_damage(project: &Project) -> Result<Vec<Damaged>> {
    let mut all = damage(project, |_| true)?;
    all.extend(unusable(project)?);
    Ok(all)
}

/// Returns the skills and forms that cannot be used. The others can be, and a commit takes all of
/// them.
pub(crate) fn unusable(project: &Project) -> Result<Vec<Damaged>> {
    let mut all = Skills::new(project).damaged()?;
    all.extend(Forms::new(project).damaged()?);
    Ok(all)
}

/// Checks the wanted files of the memory. Writes nothing, not even a copy of the damaged bytes.
pub(crate) fn damage(project: &Project, wanted: impl Fn(&str) -> bool) -> Result<Vec<Damaged>> {
    let files = project.files().reading();
    let paths = own_files(project)?;
    Ok(paths
        .into_iter()
        .filter(|path| wanted(path))
        .filter_map(|path| look(&files, path))
        .collect())
}

/// Says whether a path is that of a document of the long-term memory, of the folder of its entries,
/// or of one of them.
pub(crate) fn is_long_term(path: &str) -> bool {
    let below = |folder: &str| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    [KNOWLEDGE, FEATURES].contains(&path) || FOLDERS.into_iter().any(below)
}

/// Refuses to commit a damaged file, which would reach every clone. Paths are those of the
/// repository.
///
/// # Errors
/// `Corrupt` with the first such file.
pub(crate) fn check_whole(project: &Project, git: &Git, paths: &[String]) -> Result<()> {
    let of_repository = |path: &str| match git.memory().strip_suffix(".forge") {
        Some(folder) => format!("{folder}{path}"),
        None => path.to_owned(),
    };
    // Of a lost folder every file is gone.
    let is_changed = |path: &str| {
        let path = of_repository(path);
        let below = |changed: &String| {
            changed
                .strip_prefix(&path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        paths.iter().any(below)
    };
    let damaged = damage(project, is_changed)?;
    match damaged
        .iter()
        .find(|one| matches!(one.extent, Extent::Whole | Extent::Lines))
    {
        Some(damaged) => Err(damaged
            .error()
            .hint("nothing was committed, and nothing was written over it")),
        None => Ok(()),
    }
}

/// Returns the paths of all files that can be damaged. Not all of them exist.
fn own_files(project: &Project) -> Result<Vec<String>> {
    let mut paths: Vec<String> = [
        CONFIG,
        PROGRESS,
        JOURNAL,
        EVENTS_OUTBOX,
        HEALTH,
        EXCEPTIONS,
        ARTIFACT_INDEX,
    ]
    .map(str::to_owned)
    .to_vec();
    for kind in KINDS {
        if kind.path.ends_with(".json") {
            paths.push(kind.path.to_owned());
            continue;
        }
        if FOLDERS.contains(&kind.path) {
            paths.push(kind.path.to_owned());
        }
        for entry in project.files().list(kind.path)? {
            let path = format!("{}/{}", kind.path, entry.name);
            if entry.folder && [SESSIONS, COMMENTS].contains(&kind.path) {
                let inner = project
                    .files()
                    .list(&path)?
                    .into_iter()
                    .filter(|entry| !entry.folder);
                paths.extend(inner.map(|entry| format!("{path}/{}", entry.name)));
            } else {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn look(files: &Files, path: String) -> Option<Damaged> {
    if FOLDERS.contains(&path.as_str()) {
        let next = Some(back(&path));
        let is_lost = files.is_lost(&path).unwrap_or(false);
        return is_lost.then(|| Damaged {
            path,
            extent: Extent::Whole,
            detail: LOST.to_owned(),
            next,
        });
    }
    let form = form(&path)?;
    let next = Some(format!("helmdeck forge repair {path}"));
    let bytes = match files.read(&path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let lost = files.is_lost(&path).unwrap_or(false);
            return lost.then(|| Damaged {
                path,
                extent: Extent::Whole,
                detail: LOST.to_owned(),
                next,
            });
        }
        Err(error) => {
            // `forge repair` cannot fix a path that is not a file, or that is not readable.
            let next = error
                .next
                .clone()
                .or(next)
                .filter(|_| error.category == Category::Corrupt);
            return Some(Damaged {
                path,
                extent: Extent::Whole,
                detail: error.message,
                next,
            });
        }
    };
    let wrong = check(form, &bytes).err()?;
    let extent = match &wrong {
        Wrong::Newer(_) => Extent::Newer,
        _ if [BRANCHES, ARTIFACT_INDEX].contains(&&*path) => Extent::Harmless,
        Wrong::Whole(_) => Extent::Whole,
        Wrong::Lines { .. } => Extent::Lines,
    };
    let next = next.filter(|_| extent != Extent::Newer);
    Some(Damaged {
        path,
        extent,
        detail: wrong.detail(),
        next,
    })
}
