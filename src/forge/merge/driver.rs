//! Entry point for git: `helmdeck forge merge-driver %O %A %B %P`.

use std::io::Read;
use std::path::Path;

use serde::Serialize;

use super::merge;
use crate::environment::ProjectEnvironment;
use crate::error::{Category, Error, Result};
use crate::files::MAX_FILE;
use crate::layout::FORGE;
use crate::project::Project;

/// Result of the merge driver.
///
/// The command exits with code 1 if there are conflicts, which tells git that the file is not
/// merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Driven {
    /// The file that was merged, below the root.
    pub path: String,
    /// What could not be settled; empty if the file is merged.
    pub conflicts: Vec<String>,
    /// The path of their version, if there are conflicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
}

/// Merges a file for git.
///
/// Reads the three versions from the files that git made for them, and overwrites `ours` with the
/// result.
///
/// `root` is the root of the work tree, where git starts it; `path` is the file's own path.
///
/// # Errors
/// `Failed` if a file cannot be read or written, or is too large. `ours` is as it was then.
pub fn drive(
    root: &Path,
    environment: ProjectEnvironment,
    base: &Path,
    ours: &Path,
    theirs: &Path,
    path: &str,
) -> Result<Driven> {
    let at = |file: &Path| root.join(file);
    // The memory may lie below the root of the repository, from which git names the path.
    let project = root.join(
        path.find(FORGE)
            .and_then(|at| path.get(..at))
            .unwrap_or_default(),
    );
    let read = |file: &Path| read(&at(file), &|| most(&project, environment.clone()));
    let (base, ours_bytes, theirs) = (read(base)?, read(ours)?, read(theirs)?);
    let merged = merge(path, &base, &ours_bytes, &theirs);
    let mut quarantined = None;
    if !merged.conflicts.is_empty() {
        // Theirs is saved before ours is written, once for the same content. Until the conflict is
        // resolved, git has it too, as the third version of the path.
        if let Some(project) = Project::open_anyway(&project, environment.clone())? {
            quarantined = project.files().quarantine(path, &theirs)?;
        }
    }
    if merged.bytes != ours_bytes {
        let ours = at(ours);
        std::fs::write(&ours, &merged.bytes)
            .map_err(|error| Error::io("cannot write", &ours, &error))?;
    }
    Ok(Driven {
        path: path.to_owned(),
        conflicts: merged.conflicts,
        quarantined,
    })
}

/// Reads a file of at most as many bytes as the project's settings let a file have.
fn read(path: &Path, most: &dyn Fn() -> u64) -> Result<Vec<u8>> {
    let io = |error: std::io::Error| Error::io("cannot read", path, &error);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    let most = if file.metadata().map_err(io)?.len() > MAX_FILE {
        most()
    } else {
        MAX_FILE
    };
    file.take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > most {
        let message = format!(
            "{} is larger than {most} bytes, too large to be merged",
            path.display()
        );
        return Err(Error::new(Category::Failed, "E_TOO_LARGE", message));
    }
    Ok(bytes)
}

/// Returns the size limit of a file, in bytes.
///
/// The default applies if the settings cannot be read, as in the middle of a merge.
fn most(project: &Path, environment: ProjectEnvironment) -> u64 {
    let project = Project::open(project, environment).ok().flatten();
    project.map_or(MAX_FILE, |project| project.config().files.largest())
}
