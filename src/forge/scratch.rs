//! Notes and drafts in `scratch/`: never committed, removed only by [`Scratch::clean`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::layout::SCRATCH;
use crate::project::Project;
use crate::time::Time;

/// How deep folders are looked into.
const DEPTH: usize = 64;

/// Usage of the folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Usage {
    /// Its files and links.
    pub files: u64,
    /// How long they are together, in bytes.
    pub bytes: u64,
    /// Whether that is more than `[files] scratch_bytes` (50 MiB unless configured otherwise).
    pub over: bool,
}

/// Result of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Cleaned {
    /// The files that were removed, or would be, below the root.
    pub removed: Vec<String>,
    /// How long they were together, in bytes.
    pub bytes: u64,
    /// Whether they are still there, for it was only asked which.
    pub dry_run: bool,
    /// The usage after the cleanup; in a dry run, the usage that would be left.
    pub left: Usage,
}

/// A file or link in the folder.
struct ScratchFolder {
    path: PathBuf,
    bytes: u64,
    modified: Time,
}

/// Notes and drafts.
#[derive(Debug, Clone, Copy)]
pub struct Scratch<'a> {
    project: &'a Project,
}

impl<'a> Scratch<'a> {
    /// Returns the notes and drafts of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Scratch<'_> {
    /// Returns the usage of the folder; zero if it is absent.
    ///
    /// # Errors
    /// `Refused` if the folder is a link, `Failed` if it cannot be read.
    pub fn usage(&self) -> Result<Usage> {
        Ok(self.count(&self.found()?.0))
    }

    /// Removes the files that were last changed longer ago than `older`, and then the empty folders.
    ///
    /// Links are removed and never followed. With `dry_run`, nothing is removed.
    ///
    /// # Errors
    /// As [`Self::usage`]; `Paused`, `Locked`.
    pub fn clean(&self, older: Duration, dry_run: bool) -> Result<Cleaned> {
        self.project.check_not_paused()?;
        let _guard = self.project.files().lock()?;
        let now = self.project.environment().now();
        let (found, folders) = self.found()?;
        // A file of the future is not old.
        let old = |file: &ScratchFolder| {
            now.0.duration_since(file.modified.0).as_nanos() > i128::try_from(older.as_nanos()).unwrap_or(i128::MAX)
        };
        let (old, left): (Vec<ScratchFolder>, Vec<ScratchFolder>) = found.into_iter().partition(old);
        if !dry_run {
            for file in &old {
                fs::remove_file(&file.path).map_err(|error| Error::io("cannot remove", &file.path, &error))?;
            }
            // The deepest first; one that is not empty stays.
            for folder in folders.iter().rev() {
                let _ = fs::remove_dir(folder);
            }
        }
        let shown = |path: &Path| path.strip_prefix(self.project.root()).unwrap_or(path).to_string_lossy().into_owned();
        Ok(Cleaned {
            removed: old.iter().map(|file| shown(&file.path)).collect(),
            bytes: old.iter().map(|file| file.bytes).sum(),
            dry_run,
            left: self.count(&left),
        })
    }

    fn count(&self, found: &[ScratchFolder]) -> Usage {
        let bytes = found.iter().map(|file| file.bytes).sum();
        Usage { files: found.len() as u64, bytes, over: bytes > self.project.config().files.scratch_bytes }
    }

    /// Returns the files and links, by name, and the folders, each before those in it.
    fn found(&self) -> Result<(Vec<ScratchFolder>, Vec<PathBuf>)> {
        let (mut found, mut folders) = (Vec::new(), Vec::new());
        let folder = self.project.root().join(SCRATCH);
        match self.project.files().entry(SCRATCH)? {
            None => return Ok((found, folders)),
            Some(entry) if entry.folder => {}
            Some(_) => return Err(Error::refused(format!("{SCRATCH} is no folder"))),
        }
        walk(&folder, 0, &mut found, &mut folders)?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((found, folders))
    }
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<ScratchFolder>, folders: &mut Vec<PathBuf>) -> Result<()> {
    let io = |error: std::io::Error| Error::io("cannot read", folder, &error);
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        // Of a link, this is the link's own.
        let about = match entry.metadata() {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io(error)),
        };
        if about.is_dir() {
            if depth < DEPTH {
                folders.push(entry.path());
                walk(&entry.path(), depth + 1, found, folders)?;
            }
            continue;
        }
        let modified = about.modified().ok().and_then(|time| jiff::Timestamp::try_from(time).ok());
        let modified = Time(modified.unwrap_or(jiff::Timestamp::MAX));
        found.push(ScratchFolder { path: entry.path(), bytes: about.len(), modified });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;
    use crate::environment::ProjectEnvironment;

    const DAY: Duration = Duration::from_secs(86_400);

    fn project(folder: &Path) -> Project {
        fs::create_dir_all(folder.join(SCRATCH)).unwrap();
        Project::open(folder, ProjectEnvironment::default()).unwrap().unwrap()
    }

    fn write(folder: &Path, name: &str, days: u32) {
        let path = folder.join(SCRATCH).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "note").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - DAY * days).unwrap();
    }

    #[test]
    fn only_what_is_old_goes_and_only_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path());
        for (name, days) in [("new.md", 1), ("old.md", 8), ("deep/er/old.md", 9), ("deep/new.md", 0)] {
            write(folder.path(), name, days);
        }
        let dry = Scratch::new(&project).clean(7 * DAY, true).unwrap();
        assert_eq!(dry.removed, [format!("{SCRATCH}/deep/er/old.md"), format!("{SCRATCH}/old.md")]);
        assert_eq!(Scratch::new(&project).usage().unwrap(), Usage { files: 4, bytes: 16, over: false });

        let done = Scratch::new(&project).clean(7 * DAY, false).unwrap();
        assert_eq!(done, Cleaned { dry_run: false, ..dry });
        assert_eq!(done.left, Usage { files: 2, bytes: 8, over: false });
        assert_eq!(Scratch::new(&project).usage().unwrap(), done.left);
        assert!(!folder.path().join(SCRATCH).join("deep/er").exists(), "the folder is empty");
        assert!(folder.path().join(SCRATCH).join("deep/new.md").is_file());
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let project = project(&root);
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::write(folder.path().join("other/kept"), "kept").unwrap();
        std::os::unix::fs::symlink("../../../../../other", root.join(SCRATCH).join("link")).unwrap();
        let files = Scratch::new(&project).clean(Duration::ZERO, false).unwrap().removed;
        assert_eq!(files, [format!("{SCRATCH}/link")]);
        assert!(folder.path().join("other/kept").is_file());

        fs::remove_dir(root.join(SCRATCH)).unwrap();
        assert_eq!(Scratch::new(&project).usage().unwrap(), Usage::default());
        std::os::unix::fs::symlink("../../../../other", root.join(SCRATCH)).unwrap();
        assert!(Scratch::new(&project).clean(Duration::ZERO, false).is_err());
        assert!(folder.path().join("other/kept").is_file());
    }

    #[test]
    fn more_than_the_configured_bytes_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".forge")).unwrap();
        fs::write(folder.path().join(crate::layout::CONFIG), "[files]\nscratch_bytes = 7\n").unwrap();
        let project = project(folder.path());
        write(folder.path(), "a", 0);
        assert!(!Scratch::new(&project).usage().unwrap().over);
        write(folder.path(), "b", 0);
        assert!(Scratch::new(&project).usage().unwrap().over);
    }
}
