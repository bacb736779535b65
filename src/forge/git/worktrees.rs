//! Work trees that share one repository.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::oid::Oid;
use super::repository::Git;
use super::run::Run;
use crate::error::{Error, Result};

/// A work tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Worktree {
    /// Its folder.
    pub path: PathBuf,
    /// The commit that is checked out.
    pub head: Option<Oid>,
    /// The branch that is checked out; `None` if it is none.
    pub branch: Option<String>,
    /// Whether it is the folder of a bare repository.
    pub bare: bool,
    /// Whether its folder is gone.
    pub gone: bool,
    /// Whether git was cut short while it made it: then only some of its files are there.
    pub unfinished: bool,
}

impl Git {
    /// Returns the work trees, the main one first.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn worktrees(&self) -> Result<Vec<Worktree>> {
        Ok(parse(&self.read(&["worktree", "list", "--porcelain", "-z"])?.stdout))
    }

    /// Makes a work tree with a new branch at a commit.
    ///
    /// # Errors
    /// `E_USAGE` if the path is no UTF-8; `E_GIT` if the folder is in use or the branch is there.
    pub fn add_worktree(&self, path: &Path, branch: &str, at: &Oid) -> Result<Self> {
        let text = path.to_str().ok_or_else(|| Error::usage(format!("{} is no UTF-8", path.display())))?;
        let run = Run::writing().timeout(Duration::from_secs(600));
        self.succeed(&["worktree", "add", "--quiet", "--no-track", "-b", branch, "--", text, at.as_str()], &run)?;
        let found = self.elsewhere(path)?;
        found.ok_or_else(|| Error::not_found(format!("{} is no work tree", path.display())))
    }

    /// Returns git for another work tree, with the same variables.
    ///
    /// # Errors
    /// As [`Git::find`].
    pub fn elsewhere(&self, path: &Path) -> Result<Option<Self>> {
        Ok(Self::find(path)?.map(|git| git.with_variables_of(self)))
    }
}

fn parse(bytes: &[u8]) -> Vec<Worktree> {
    let mut all: Vec<Worktree> = Vec::new();
    for line in bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy) {
        let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
        if name == "worktree" {
            all.push(Worktree { path: value.into(), ..Worktree::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        match name {
            "HEAD" => last.head = Oid::parse(value).filter(|oid| !oid.is_none()),
            "branch" => last.branch = Some(value.trim_start_matches("refs/heads/").to_owned()),
            "bare" => last.bare = true,
            "prunable" => last.gone = true,
            // git holds this lock of its own until all is checked out.
            "locked" => last.unfinished = value == "initializing",
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Repository;

    #[test]
    fn a_work_tree_is_made_and_listed() {
        let repository = Repository::new();
        let git = repository.git();
        let first = repository.commit("first");
        let second = repository.commit("second");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("other tree");
        let other = git.add_worktree(&path, "forge/rollback/a-1", &first).unwrap();
        assert_eq!(other.root(), path);
        assert_eq!(other.head().unwrap(), Some(first.clone()));
        assert_eq!(other.common_dir(), git.common_dir());
        assert_ne!(other.git_dir(), git.git_dir());
        let all = git.worktrees().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((&all[0].head, all[0].branch.as_deref()), (&Some(second), Some("main")));
        assert_eq!((&all[1].path, all[1].branch.as_deref()), (&path, Some("forge/rollback/a-1")));
        assert_eq!(git.add_worktree(&path, "b", &first).unwrap_err().code, "E_GIT");
        std::fs::remove_dir_all(&path).unwrap();
        assert!(git.worktrees().unwrap()[1].gone);
    }
}
