//! The work trees of a repository.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Result;
use crate::oid::Oid;
use crate::repository::Git;
use crate::run::Run;

/// A work tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Worktree {
    /// Its folder.
    pub path: PathBuf,
    /// The commit that is checked out.
    pub head: Option<Oid>,
    /// The branch that is checked out; `None` if `HEAD` is detached.
    pub branch: Option<String>,
    /// Whether it is the folder of a bare repository.
    pub bare: bool,
    /// Whether its folder no longer exists.
    pub gone: bool,
    /// Whether git was interrupted while it created it, so that files are missing.
    pub unfinished: bool,
}

impl Git {
    /// Returns the work trees, the main one first.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn worktrees(&self) -> Result<Vec<Worktree>> {
        Ok(parse(
            &self
                .read(&["worktree", "list", "--porcelain", "-z"])?
                .stdout,
        ))
    }

    /// Adds a work tree: the commit that is checked out here, and no branch.
    ///
    /// # Errors
    /// As [`Git::succeed`], if the folder exists for example.
    pub fn add_worktree(&self, folder: &Path) -> Result<()> {
        let run = Run::writing().with_hooks();
        self.succeed_at(&["worktree", "add", "--quiet", "--detach"], folder, &run)
    }

    /// Removes a work tree that has no changes.
    ///
    /// # Errors
    /// As [`Git::succeed`], if it has changes for example.
    pub fn remove_worktree(&self, folder: &Path) -> Result<()> {
        self.succeed_at(&["worktree", "remove"], folder, &Run::writing())
    }

    fn succeed_at(&self, args: &[&str], folder: &Path, run: &Run) -> Result<()> {
        let folder = folder.to_string_lossy();
        self.succeed(&[args, &["--", &folder]].concat(), run)
            .map(drop)
    }

    /// Returns another work tree, with the same options.
    ///
    /// # Errors
    /// As [`Git::find`].
    pub fn elsewhere(&self, path: &Path) -> Result<Option<Self>> {
        Ok(Self::find(path)?.map(|git| git.with_options_of(self)))
    }
}

fn parse(bytes: &[u8]) -> Vec<Worktree> {
    let mut all: Vec<Worktree> = Vec::new();
    for line in bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy) {
        let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
        if name == "worktree" {
            all.push(Worktree {
                path: value.into(),
                ..Worktree::default()
            });
        }
        let Some(last) = all.last_mut() else { continue };
        match name {
            "HEAD" => last.head = Oid::parse(value).filter(|oid| !oid.is_none()),
            "branch" => last.branch = Some(value.trim_start_matches("refs/heads/").to_owned()),
            "bare" => last.bare = true,
            "prunable" => last.gone = true,
            // git holds this lock until everything is checked out.
            "locked" => last.unfinished = value == "initializing",
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fixture::Repository;

    #[test]
    fn work_trees_are_listed() {
        let repository = Repository::new();
        let git = repository.git();
        let first = repository.commit("first");
        let second = repository.commit("second");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("other tree");
        let text = path.to_str().unwrap();
        repository.run(&[
            "worktree",
            "add",
            "--quiet",
            "-b",
            "forge/rollback/a-1",
            text,
            first.as_str(),
        ]);
        let other = git.elsewhere(&path).unwrap().unwrap();
        assert_eq!(other.root(), path);
        assert_eq!(other.head().unwrap(), Some(first));
        assert_eq!(other.common_dir(), git.common_dir());
        assert_ne!(other.git_dir(), git.git_dir());
        let all = git.worktrees().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            (&all[0].head, all[0].branch.as_deref()),
            (&Some(second), Some("main"))
        );
        assert_eq!(
            (&all[1].path, all[1].branch.as_deref()),
            (&path, Some("forge/rollback/a-1"))
        );
        std::fs::remove_dir_all(&path).unwrap();
        assert!(git.worktrees().unwrap()[1].gone);
    }
}
