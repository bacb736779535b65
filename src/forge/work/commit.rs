//! `commit`: with the key, the feature and the files that are known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Work;
use crate::error::{Category, Error, Result};
use crate::git::{Commits, Committed, NewCommit, Status};
use crate::sessions::Sessions;

/// Request for a commit in few words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Short {
    /// What was done, in one line: the subject.
    pub what: String,
    /// More of what was done.
    pub more: Vec<String>,
    /// Why. Default: the issue.
    pub why: Option<String>,
    /// The issue. Default: that of the focus, or else of the branch.
    pub key: Option<String>,
    /// What was learned.
    pub learned: Vec<String>,
    /// Whether it closes the issue in the tracker when it is merged.
    pub closes: bool,
    /// Files and folders. Default: what is staged, else the changed files of the focus, else all
    /// changed files.
    pub paths: Vec<String>,
}

/// A commit made in few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShortCommit {
    /// The issue; `null` where issues are switched off.
    pub key: Option<String>,
    /// The changed files that it was made of; empty for what was staged.
    pub paths: Vec<String>,
    /// Changed files that are not in it.
    pub left: Vec<String>,
    /// Why, as the commit says.
    pub why: String,
    /// The commit.
    #[serde(flatten)]
    pub commit: Committed,
}

impl Work<'_> {
    /// Commits what was done, with the memory.
    ///
    /// # Errors
    /// `Usage` if the issue is not known; as [`Commits::create`].
    pub fn commit(&self, short: &Short) -> Result<ShortCommit> {
        let project = self.project;
        project.check_not_paused()?;
        let session = Sessions::new(project).required()?;
        let key = match &short.key {
            Some(key) => Some(key.clone()),
            None => self.key()?,
        };
        if key.is_none() && !self.without_issues() {
            return Err(no_key());
        }
        let (paths, left) = self.files(&project.git()?.status()?, &short.paths)?;
        let subject = short
            .what
            .trim()
            .trim_end_matches('.')
            .trim_end()
            .to_owned();
        let why = match short
            .why
            .as_deref()
            .map(str::trim)
            .filter(|why| !why.is_empty())
        {
            Some(why) => why.to_owned(),
            None => self.why(key.as_deref())?.unwrap_or_else(|| subject.clone()),
        };
        let what = if short.more.is_empty() {
            vec![subject.clone()]
        } else {
            short.more.clone()
        };
        let new = NewCommit {
            session_commit: key.is_none(),
            key: key.clone(),
            subject,
            what,
            why: why.clone(),
            learned: short.learned.clone(),
            paths: paths.clone(),
            closes: short.closes,
            ..NewCommit::default()
        };
        let origin = Commits::new(project).origin(&session.id, &session.uuid)?;
        let commit = Commits::new(project).create(&new, &origin)?;
        Ok(ShortCommit {
            key,
            paths,
            left,
            why,
            commit,
        })
    }

    /// Returns why work is done on an issue: its title.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn why(&self, key: Option<&str>) -> Result<Option<String>> {
        let issue = match key {
            Some(key) => self.issue(key)?,
            None => None,
        };
        Ok(issue.map(|issue| format!("{}: {}", issue.linear_id, issue.title)))
    }

    /// Returns the files to stage, and the changed files that are left.
    pub(super) fn files(
        &self,
        status: &Status,
        named: &[String],
    ) -> Result<(Vec<String>, Vec<String>)> {
        let git = self.project.git()?;
        let mut changed: Vec<String> = status
            .outside(git.memory())
            .filter_map(|path| git.in_project(path))
            .map(str::to_owned)
            .collect();
        changed.sort();
        let below = |path: &str, all: &[String]| {
            all.iter().any(|one| {
                let one = one.trim_end_matches('/');
                path.strip_prefix(one)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let part = |wanted: &[String]| -> (Vec<String>, Vec<String>) {
            changed
                .iter()
                .cloned()
                .partition(|path| below(path, wanted))
        };
        if !named.is_empty() {
            return Ok((named.to_vec(), part(named).1));
        }
        if status.staged().any(|path| !git.is_memory(path.as_bytes())) {
            let staged: Vec<&str> = status.staged().collect();
            let left = changed
                .into_iter()
                .filter(|path| !staged.contains(&path.as_str()))
                .collect();
            return Ok((Vec::new(), left));
        }
        let (focused, rest) = part(&self.focus()?.files);
        Ok(if focused.is_empty() {
            (rest, Vec::new())
        } else {
            (focused, rest)
        })
    }
}

/// Returns the error of a commit whose issue is not known.
pub fn no_key() -> Error {
    let message =
        "a commit needs the key of its issue, and neither the focus nor the branch has one";
    Error::new(Category::Usage, "E_USAGE", message)
        .hint("start an issue with `helmdeck forge start KEY`, or name one with --key")
        .next("helmdeck forge ready")
}
