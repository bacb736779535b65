//! Commits of the branch, as a page shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Part, Wanted};
use crate::error::{Error, Result};
use crate::git::message;
use crate::project::Project;
use crate::time::Time;

/// Format of a commit, before its message.
const FORMAT: &str = "--format=%H%n%ct%n%an%n%B";

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

/// Lists the commits of the branch, newest first. `after` is the number of commits that the caller has.
///
/// # Errors
/// `NotFound` (`E_NOT_A_REPO`) without git; `Usage` for an `after` that is no number; errors from git.
pub fn commits(project: &Project, wanted: &Wanted) -> Result<Part<SeenCommit>> {
    let skip = match &wanted.after {
        None => 0,
        Some(after) => {
            after.parse::<usize>().map_err(|_| Error::usage(format!("{after:?} is no number of commits")))?
        }
    };
    let git = project.git()?;
    if git.head()?.is_none() {
        return Ok(Part { items: Vec::new(), total: 0, next: None });
    }
    let total = usize::try_from(git.count("HEAD")?).unwrap_or(usize::MAX);
    let items = log(project, &[&format!("--skip={skip}"), &format!("--max-count={}", wanted.limit), "HEAD"])?;
    let seen = skip.saturating_add(items.len());
    let next = (seen < total && !items.is_empty()).then(|| seen.to_string());
    Ok(Part { items, total, next })
}

/// Lists the newest commits that changed a file or folder of the memory, newest first.
///
/// # Errors
/// As [`commits`].
pub fn revisions(project: &Project, paths: &[&str], limit: usize) -> Result<Vec<SeenCommit>> {
    let git = project.git()?;
    if git.head()?.is_none() {
        return Ok(Vec::new());
    }
    let paths: Vec<String> = paths.iter().map(|path| format!(":(top,literal){}", git.in_memory(path))).collect();
    let limit = format!("--max-count={limit}");
    let mut args = vec![limit.as_str(), "HEAD", "--"];
    args.extend(paths.iter().map(String::as_str));
    log(project, &args)
}

fn log(project: &Project, rest: &[&str]) -> Result<Vec<SeenCommit>> {
    let fixed = ["log", "-z", FORMAT, "--encoding=UTF-8", "--no-mailmap", "--no-notes", "--no-show-signature"];
    let mut args = fixed.to_vec();
    args.extend(rest);
    if !rest.contains(&"--") {
        args.push("--");
    }
    let output = project.git()?.read(&args)?;
    Ok(output.stdout.split(|byte| *byte == 0).filter_map(parse).collect())
}

fn parse(record: &[u8]) -> Option<SeenCommit> {
    let text = String::from_utf8_lossy(record);
    let mut parts = text.splitn(4, '\n');
    let (commit, seconds, author) = (parts.next()?, parts.next()?, parts.next()?);
    let text = parts.next().unwrap_or_default();
    let parsed = message::parse(text);
    let first = parsed.messages.first();
    Some(SeenCommit {
        commit: commit.to_owned(),
        at: Time(jiff::Timestamp::from_second(seconds.parse().ok()?).ok()?),
        author: author.to_owned(),
        subject: text.lines().next().unwrap_or_default().to_owned(),
        issue: first.and_then(|message| message.key()).map(str::to_owned),
        session: first.and_then(|message| message.session()).map(str::to_owned),
    })
}
