//! `start --worktree`: a work tree of its own for an issue, so that two agents do not work on one
//! branch.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Work;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::issues::{self, Start as StartIssue, is_key};
use crate::project::Project;
use crate::sessions::Sessions;

/// Work in another work tree of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Elsewhere {
    /// The issue or the feature.
    pub what: String,
    /// The session.
    pub session: String,
    /// The root of the project in that work tree.
    pub worktree: PathBuf,
}

impl Work<'_> {
    /// Returns the project in the work tree for an issue, a feature or a title.
    ///
    /// That is the one that has the branch of the issue, or else a new one,
    /// `<REPOSITORY>.worktrees/<KEY>` beside the main work tree, at the commit that is checked out
    /// here. An issue that is not committed goes there with its file.
    ///
    /// # Errors
    /// `NotFound` for what is neither; `Refused` if it has no branch, or the folder exists; errors
    /// from git.
    pub fn worktree(&self, what: &str, branch: Option<&str>) -> Result<Project> {
        let (what, project) = (what.trim(), self.project);
        let git = project.git()?;
        let is_title = what.contains(char::is_whitespace);
        let issue = if is_key(what) {
            project
                .issues()
                .show(what)
                .ok()
                .map(|shown| shown.item.issue)
        } else {
            None
        };
        let is_feature = !is_title && Features::new(project).read()?.get(what).is_some();
        if issue.is_none() && !is_feature && !is_title {
            self.target(Some(what))?;
        }
        if is_feature && self.without_issues() {
            return Err(Error::refused(format!(
                "{what} has no issue, and so no branch: a work tree needs one"
            ))
            .next("git worktree add -b BRANCH FOLDER"));
        }
        let below = project
            .root()
            .strip_prefix(git.root())
            .unwrap_or_else(|_| Path::new(""));
        let trees = git.worktrees()?;
        if let Some(issue) = &issue {
            let wish = StartIssue {
                branch: branch.map(str::to_owned),
                no_branch: false,
            };
            let name = issues::branch_name(issue, &wish);
            let there = trees
                .iter()
                .find(|tree| !tree.gone && tree.branch.as_deref() == Some(&name));
            if let Some(tree) = there {
                return self.opened(&tree.path.join(below));
            }
        }
        let main = trees
            .first()
            .map_or_else(|| git.root().to_owned(), |tree| tree.path.clone());
        let mut folder = OsString::from(main);
        folder.push(".worktrees");
        let name = if is_title {
            issues::slug(what)
        } else {
            what.to_owned()
        };
        let folder = PathBuf::from(folder).join(if name.is_empty() {
            "work".to_owned()
        } else {
            name
        });
        if folder.exists() {
            return Err(Error::refused(format!("{} exists", folder.display()))
                .hint("work there, or take another title"));
        }
        git.add_worktree(&folder)?;
        let brought = self.opened(&folder.join(below)).and_then(|there| {
            if let Some(issue) = issue {
                issues::hand_over(project, &there, &issue)?;
            } else if is_feature && Features::new(&there).read()?.get(what).is_none() {
                return Err(Error::refused(format!(
                    "{what} is not committed, so a new work tree does not have it"
                ))
                .hint("commit .forge/ first"));
            }
            Ok(there)
        });
        if brought.is_err() {
            git.remove_worktree(&folder)?;
        }
        brought
    }

    fn opened(&self, folder: &Path) -> Result<Project> {
        let none = || {
            Error::refused(format!(
                "{} has no .forge/: it is not committed",
                folder.display()
            ))
            .hint("commit .forge/ first, so that each work tree has it")
        };
        if !folder.is_dir() {
            return Err(none());
        }
        Project::open(folder, self.project.environment().clone())?.ok_or_else(none)
    }

    /// Returns what is worked on in other work trees.
    pub(super) fn elsewhere(&self) -> Vec<Elsewhere> {
        Sessions::new(self.project).elsewhere()
    }
}
