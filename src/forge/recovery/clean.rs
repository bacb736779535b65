//! Removes work trees of rollbacks that hold nothing uncommitted or unmerged.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::rollback::WORKTREES;
use super::{Recovery, rollback};
use crate::error::Result;
use crate::git::{Git, Run, Worktree};
use crate::project::Project;
use crate::sessions::Sessions;

/// The result of cleaning up rollback work trees.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    /// Work trees that were removed, or would be. Their branches stay.
    pub removed: Vec<String>,
    /// Work trees that stay.
    pub kept: Vec<Needed>,
    /// Whether they were removed.
    pub applied: bool,
}

/// A work tree that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Needed {
    /// Its folder.
    pub path: String,
    /// Why it stays.
    pub why: String,
}

impl Recovery<'_> {
    /// Finds the rollback work trees that are no longer needed, and with `yes` removes them.
    ///
    /// git refuses to remove one with changes.
    ///
    /// # Errors
    /// `Paused`; errors from git and the files.
    pub fn clean(&self, yes: bool) -> Result<Cleaned> {
        if yes {
            self.project.check_not_paused()?;
        }
        let git = self.project.git()?;
        let mut made: Vec<PathBuf> =
            self.journal()?.past.into_iter().filter_map(|one| one.worktree).map(PathBuf::from).collect();
        made.iter_mut().for_each(|path| *path = real(path));
        let below = real(&self.project.root().join(WORKTREES));
        let mut cleaned = Cleaned { applied: yes, ..Cleaned::default() };
        for tree in git.worktrees()? {
            let place = real(&tree.path);
            if place == real(git.root()) || !(made.contains(&place) || place.starts_with(&below)) {
                continue;
            }
            let path = tree.path.to_string_lossy().into_owned();
            if let Some(why) = self.needed(git, &tree)? {
                cleaned.kept.push(Needed { path, why });
                continue;
            }
            if yes {
                git.succeed(&["worktree", "remove", "--", &path], &rollback::slow())?;
            }
            cleaned.removed.push(path);
        }
        Ok(cleaned)
    }

    /// Returns why a work tree is still needed.
    fn needed(&self, git: &Git, tree: &Worktree) -> Result<Option<String>> {
        if tree.gone || tree.unfinished {
            return Ok(Some("git knows it and it is not whole; see `git worktree list`".to_owned()));
        }
        let (Some(there), Some(head)) = (git.elsewhere(&tree.path)?, &tree.head) else {
            return Ok(Some("it is no work tree".to_owned()));
        };
        let below = self.project.root().strip_prefix(git.root()).unwrap_or_else(|_| Path::new(""));
        if let Some(project) = Project::open_anyway(&tree.path.join(below), self.project.environment().clone())? {
            let living = Sessions::new(&project).seen()?;
            if let Some(session) = living.sessions.iter().find(|session| session.state.is_alive()) {
                return Ok(Some(format!("session {} works there; end it first", session.id)));
            }
        }
        if !there.status()?.is_clean() {
            return Ok(Some("something in it is not committed".to_owned()));
        }
        let contains = format!("--contains={head}");
        let args = ["for-each-ref", &contains, "--format=%(refname:short)", "refs/heads/", "refs/remotes/"];
        let holders = git.succeed(&args, &Run::default())?.text();
        let merged = holders.lines().any(|name| Some(name) != tree.branch.as_deref());
        let branch = tree.branch.as_deref().unwrap_or("its commit");
        Ok((!merged).then(|| format!("{branch} is merged nowhere")))
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
