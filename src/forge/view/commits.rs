//! Commits of the branch, as a page shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ListPage, PageRequest};
use crate::error::{Error, Result};
use crate::git::{Commit, message};
use crate::project::Project;
use crate::time::Time;

/// Commit in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenCommit {
    /// Its id.
    pub commit: String,
    /// When it was committed.
    pub at: Time,
    /// The name of its author.
    pub author: String,
    /// The first line of its message.
    pub subject: String,
    /// The issue it belongs to, if its message names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// The work session that made it, if its message names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// Lists the commits of the branch, newest first. `after` is the number of commits that the caller
/// has.
///
/// # Errors
/// `NotFound` (`E_NOT_A_REPO`) without git; `Usage` for an `after` that is no number; errors from
/// git.
pub fn commits(project: &Project, wanted: &PageRequest) -> Result<ListPage<SeenCommit>> {
    let skip = match &wanted.after {
        None => 0,
        Some(after) => after
            .parse::<usize>()
            .map_err(|_| Error::usage(format!("{after:?} is no number of commits")))?,
    };
    let git = project.git()?;
    if git.head()?.is_none() {
        return Ok(ListPage {
            items: Vec::new(),
            total: 0,
            next: None,
        });
    }
    let total = usize::try_from(git.count("HEAD")?).unwrap_or(usize::MAX);
    let part = [
        format!("--skip={skip}"),
        format!("--max-count={}", wanted.limit),
    ];
    let items: Vec<_> = git
        .log_of(&[&part[0], &part[1]], "HEAD", &[])?
        .into_iter()
        .map(seen)
        .collect();
    let seen = skip.saturating_add(items.len());
    let next = (seen < total && !items.is_empty()).then(|| seen.to_string());
    Ok(ListPage { items, total, next })
}

/// Lists the newest commits that changed a file or folder of the memory, newest first.
///
/// # Errors
/// As [`commits`].
pub fn revisions(project: &Project, paths: &[&str], limit: usize) -> Result<Vec<SeenCommit>> {
    let git = project.git()?;
    let paths: Vec<String> = paths
        .iter()
        .map(|path| format!(":(top,literal){}", git.in_memory(path)))
        .collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let all = git.log_of(&[&format!("--max-count={limit}")], "HEAD", &paths)?;
    Ok(all.into_iter().map(seen).collect())
}

fn seen((commit, text): (Commit, String)) -> SeenCommit {
    let parsed = message::parse(&text);
    let first = parsed.messages.first();
    SeenCommit {
        commit: commit.oid.to_string(),
        at: commit.time.into(),
        author: commit.author.name,
        subject: text.lines().next().unwrap_or_default().to_owned(),
        issue: first.and_then(|message| message.key()).map(str::to_owned),
        session: first
            .and_then(|message| message.session())
            .map(str::to_owned),
    }
}
