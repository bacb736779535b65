//! A day's work in few words: start, verify, commit, done, remember, status.
//!
//! Each word does what several longer commands do, with what the focus knows: the issue, the
//! feature and the files.

mod commit;
mod done;
mod start;
mod status;
#[cfg(test)]
mod tests;
mod verify;
mod worktree;

pub use commit::{Short, ShortCommit, no_key};
pub use done::{Done, Finished};
pub use start::{Start, Started};
pub use status::{ChangedFiles, Status, TrackerTrouble};
pub use verify::{Verification, Verify};
pub use worktree::Elsewhere;

use crate::config::LinearMode;
use crate::error::{Error, Result};
use crate::features::{Features, Standing};
use crate::focus::Focus;
use crate::git::message;
use crate::issues::Issue;
use crate::knowledge::{Added, Learning, What};
use crate::project::Project;
use crate::sessions::Sessions;

/// A day's work on a project.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    project: &'a Project,
}

impl<'a> Work<'a> {
    /// Returns the work on a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Work<'_> {
    /// Returns the focus of the caller's session.
    fn focus(&self) -> Result<Focus> {
        let shown = Sessions::new(self.project).focus_now()?.show()?;
        Ok(shown.map(|shown| shown.focus).unwrap_or_default())
    }

    /// Returns the open issue with a key.
    fn issue(&self, key: &str) -> Result<Option<Issue>> {
        Ok(self.project.issues().read()?.find(key).cloned())
    }

    /// Returns the key that a commit belongs to: that of the focus, or else of the branch.
    ///
    /// # Errors
    /// `Corrupt`; errors from git.
    pub fn key(&self) -> Result<Option<String>> {
        if let Some(key) = self.focus()?.linear_issue {
            return Ok(Some(key));
        }
        let branch = match self.project.repository()? {
            Some(git) => git.branch()?,
            None => None,
        };
        let issues = self.project.issues().read()?.issues;
        let is_on = |issue: &&Issue| {
            branch.is_some()
                && issue
                    .git_refs
                    .as_ref()
                    .is_some_and(|refs| refs.branch == branch)
        };
        if let Some(issue) = issues.iter().find(is_on) {
            return Ok(Some(issue.linear_id.clone()));
        }
        let key = branch
            .as_deref()
            .and_then(|branch| message::keys(branch).first().map(|key| (*key).to_owned()));
        // A branch may be named after an issue's earlier key.
        Ok(match key {
            Some(key) => Some(self.issue(&key)?.map_or(key, |issue| issue.linear_id)),
            None => None,
        })
    }

    /// Returns the features that the focus is about: its own, or else those of its issue.
    ///
    /// # Errors
    /// `Usage` if there is none.
    pub fn features(&self) -> Result<Vec<String>> {
        let focus = self.focus()?;
        if let Some(id) = focus.feature_id {
            return Ok(vec![id]);
        }
        let issue = match &focus.linear_issue {
            Some(key) => self.issue(key)?,
            None => None,
        };
        let features = issue.map(|issue| issue.features).unwrap_or_default();
        if features.is_empty() {
            return Err(Error::usage(
                "the focus has no feature: name one, or use --all or --stale",
            )
            .next("helmdeck forge features list"));
        }
        Ok(features)
    }

    /// Returns the features of the focus that do not work.
    fn broken(&self) -> Result<Vec<(String, Standing)>> {
        let Ok(wanted) = self.features() else {
            return Ok(Vec::new());
        };
        let listed = Features::new(self.project).list()?;
        let broken = listed
            .features
            .into_iter()
            .filter(|item| wanted.contains(&item.feature.id));
        let broken =
            broken.filter(|item| !item.standing.counts() && item.standing != Standing::Deferred);
        Ok(broken
            .map(|item| (item.feature.id, item.standing))
            .collect())
    }

    /// Learns a text, as [`Self::learning`] reads it.
    ///
    /// # Errors
    /// As [`Sessions::learn`].
    pub fn remember(&self, said: &str) -> Result<Added> {
        Sessions::new(self.project).learn(self.learning(said)?)
    }

    /// Returns what a text says: `when it applies: what works`, or else a text about the focus.
    ///
    /// # Errors
    /// `Corrupt` if the focus is damaged.
    pub fn learning(&self, said: &str) -> Result<Learning> {
        let focus = self.focus()?;
        let (context, approach) = match said.split_once(": ") {
            Some((context, approach))
                if !context.trim().is_empty() && !approach.trim().is_empty() =>
            {
                (context.trim().to_owned(), approach.trim().to_owned())
            }
            _ => (
                focus
                    .task
                    .clone()
                    .unwrap_or_else(|| "This project".to_owned()),
                said.trim().to_owned(),
            ),
        };
        Ok(Learning {
            linear: focus.linear_issue,
            ..Learning::new(What::Successful { context, approach })
        })
    }

    /// Says whether issues are switched off.
    fn without_issues(&self) -> bool {
        self.project.config().linear.mode == LinearMode::Off
    }
}
