//! Memory in commits that a person makes with git: the hook `pre-commit` adds it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Commits, private};
use crate::config::CommitMode;
use crate::error::{Error, Result};
use crate::git::Run;
use crate::layout::FORGE;
use crate::repair;

/// Beginning of the name of the index that git makes for `git commit PATH`.
const PARTIAL: &str = "next-index-";

impl Commits<'_> {
    /// Adds the memory to the commit that git is about to make. Returns whether it added something.
    ///
    /// Nothing but `.forge/` is staged, and only with `[git] commits = "with-work"`. `index` is the index of the
    /// commit, as git names it to the hook. A commit of named paths stays as it is, because the repository's own index
    /// would lack the memory afterwards; so does one in the middle of a merge or a rebase.
    ///
    /// # Errors
    /// `Secret`, or `Corrupt` for a damaged file: then nothing is staged. Errors from git.
    pub fn add_memory(&self, index: Option<&str>) -> Result<bool> {
        let project = self.project;
        let git = project.git()?;
        let is_partial = index.and_then(|index| index.rsplit('/').next()).is_some_and(|name| name.starts_with(PARTIAL));
        if project.config().git.commits != CommitMode::WithWork
            || is_partial
            || git.operation()?.is_some()
            || git.ignores_memory()?
            || !project.root().join(FORGE).is_dir()
        {
            return Ok(false);
        }
        let index = index.map(|index| git.root().join(index));
        let folder = private(git)?;
        // A secret that is found gets into no object of the repository.
        let aside = git.aside(folder.path())?;
        let copy = match &index {
            Some(index) => copied(index, folder.path())?,
            None => git.copy_index(folder.path(), "index")?,
        };
        let before = aside.write_tree(&copy)?;
        let add = |git: &crate::git::Git, index: Option<&Path>| -> Result<()> {
            let memory = self.below_root(git, FORGE);
            let run = index.map_or_else(Run::writing, |index| Run::writing().variable("GIT_INDEX_FILE", index));
            git.succeed(&["--literal-pathspecs", "add", "--all", "--", &memory], &run)?;
            Ok(())
        };
        add(&aside, Some(&copy))?;
        let run = Run::default().variable("GIT_INDEX_FILE", &copy);
        if !self.look_for_secrets(&aside, before.as_str(), &run, folder.path())? {
            return Ok(false);
        }
        let names = ["diff", "--cached", "--name-only", "-z", "--no-ext-diff", "--no-renames", "--no-relative"];
        let names = aside.succeed(&[&names[..], &[before.as_str()]].concat(), &run)?.stdout;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        repair::check_whole(project, git, &names)?;
        project.files().check_secrets("the names of new files", names.join("\n").as_bytes())?;
        add(git, index.as_deref())?;
        Ok(true)
    }
}

/// Copies the index of a commit into a folder. A missing one is an empty one.
fn copied(index: &Path, folder: &Path) -> Result<PathBuf> {
    let to = folder.join("index");
    let copied = fs::metadata(index).and_then(|about| about.modified()).and_then(|modified| {
        fs::copy(index, &to)?;
        // With a newer index, git would miss a file that changed in the same tick.
        fs::File::options().write(true).open(&to)?.set_modified(modified)
    });
    match copied {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("cannot copy", index, &error)),
        _ => Ok(to),
    }
}
