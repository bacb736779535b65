//! Publishes a successful change: a new branch, and a pull request for it.
//!
//! The push is one step of git's, so a run that is cancelled leaves no half of a branch. One that
//! is cancelled between push and pull request leaves the branch.

use helmdeck_core::text::truncate;
use helmdeck_core::{Code, Context, Error, Json, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::input::{Input, Mode};
use super::repository::{Address, Checkout, Repository, RepositoryRef};

/// The longest title of a pull request, in characters: GitHub takes 256.
const MAX_TITLE_CHARS: usize = 120;

/// Maximum length of a task in a pull request, in bytes.
const MAX_TASK_BYTES: usize = 8000;

/// A change on its way.
pub(super) struct Change<'a> {
    pub(super) input: &'a Input,
    pub(super) wanted: RepositoryRef<'a>,
    pub(super) checkout: &'a Checkout,
    pub(super) patch: &'a [u8],
    pub(super) summary: &'a str,
    pub(super) tests: Option<String>,
    pub(super) trajectory: Option<&'a str>,
    pub(super) model: &'a str,
}

/// Result of publishing.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) commit: Option<String>,
    pub(super) branch: Option<String>,
    pub(super) pr_url: Option<String>,
    /// Why a requested pull request does not exist.
    pub(super) trouble: Option<Error>,
}

/// Returns `owner/name` of the repository on GitHub; `None` if no pull request is requested.
///
/// # Errors
/// `invalid_input` if one is, and the repository is not on the GitHub that this engine uses.
pub(super) fn on_github(
    mode: Mode,
    address: &Address,
    host: Option<&str>,
) -> Result<Option<String>> {
    if mode != Mode::PullRequest {
        return Ok(None);
    }
    let refused = |message: String| Err(Error::new(Code::InvalidInput, message));
    let Some(host) = host else {
        return refused(
            "mode pull_request needs the github packs, which this build does not have".to_owned(),
        );
    };
    let path = address
        .key
        .split_once('/')
        .map(|(_, path)| path)
        .filter(|path| path.split('/').count() == 2);
    match path {
        Some(path) if address.host.as_deref() == Some(host) => Ok(Some(path.to_owned())),
        _ => refused(format!(
            "mode pull_request needs a repository on {host}, as owner/name"
        )),
    }
}

/// Returns the name of this run's branch. Each run has its own, even for equal commits.
pub(super) fn branch(run: &str) -> String {
    let digest = Sha256::digest(run.as_bytes());
    let short = helmdeck_core::hex(&digest[..5]);
    format!("helmdeck/swe-solve-{short}")
}

/// Pushes a change as a new branch, and opens a pull request if `github` names a repository.
///
/// A pull request that cannot be opened is reported but no failure: the branch exists.
pub(super) async fn publish(
    context: &Context,
    repository: &dyn Repository,
    change: &Change<'_>,
    github: Option<&str>,
) -> Result<Published> {
    let branch = branch(&context.run.to_string());
    context.report(Some(90.0), &format!("pushing {branch}"));
    let message = format!(
        "{}\n\n{}\n",
        title(&change.input.task),
        change.summary.trim()
    );
    let commit = repository
        .push(
            context,
            change.wanted,
            change.checkout,
            change.patch,
            &branch,
            &message,
        )
        .await?;
    let mut published = Published {
        commit: Some(commit),
        branch: Some(branch.clone()),
        ..Published::default()
    };
    if let Some(repo) = github {
        context.report(Some(95.0), "opening a pull request");
        match open(context, change, repo, &branch).await {
            Ok(url) => published.pr_url = Some(url),
            Err(error) => published.trouble = Some(error),
        }
    }
    Ok(published)
}

async fn open(context: &Context, change: &Change<'_>, repo: &str, branch: &str) -> Result<String> {
    let Change {
        input, checkout, ..
    } = change;
    let base = input
        .base_branch
        .as_ref()
        .or(checkout.branch.as_ref())
        .or(checkout.default_branch.as_ref());
    let base = base.ok_or_else(|| {
        Error::new(
            Code::InvalidInput,
            "the remote names no default branch: name base_branch in the input",
        )
    })?;
    let mut asked = json!({
        "repo": repo, "title": title(&input.task), "head": branch, "base": base, "body": body(change),
    });
    if let Some(credential) = &input.credential {
        asked["credential"] = credential.as_str().into();
    }
    let outcome = context.call("github.create_pr", Json::from(asked)).await?;
    let url = outcome.output.to_value()["html_url"]
        .as_str()
        .map(str::to_owned);
    url.ok_or_else(|| {
        Error::new(
            Code::InvalidOutput,
            "github.create_pr did not say where the pull request is",
        )
    })
}

fn title(task: &str) -> String {
    let line = task
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    truncate(&line.replace(char::is_control, ""), MAX_TITLE_CHARS).into_owned()
}

fn body(change: &Change<'_>) -> String {
    let task = &change.input.task;
    let task = &task[..task.floor_char_boundary(MAX_TASK_BYTES)];
    let quoted: String = task.lines().map(|line| format!("> {line}\n")).collect();
    let tests = change.tests.as_deref().unwrap_or("none were asked for");
    let trajectory = change.trajectory.unwrap_or("not kept");
    format!(
        "**Task**\n\n{quoted}\n**Summary**, in the model's words\n\n{}\n\n**Tests**: {tests}\n\n**Trajectory**: `{trajectory}`\n\n---\nA model ({}) wrote this change, run by helmdeck's `swe.solve`. Review it as you would a stranger's before you merge it.\n",
        fenced(change.summary.trim()),
        change.model
    )
}

/// Returns text in a fence that it cannot leave (`CommonMark` 0.31 section 4.5).
///
/// A model's words thus cannot mention people, close issues or load images.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(key: &str, host: Option<&str>) -> Address {
        Address {
            key: key.into(),
            host: host.map(str::to_owned),
        }
    }

    #[test]
    fn a_pull_request_needs_a_repository_on_that_github() {
        let here = Some("github.com");
        let of = |key, host| on_github(Mode::PullRequest, &address(key, host), here);
        assert_eq!(of("github.com/a/b", here).unwrap().unwrap(), "a/b");
        for (key, host) in [
            ("gitlab.com/a/b", Some("gitlab.com")),
            ("github.com/a", here),
            ("/srv/a", None),
            ("github.com/a/b/c", here),
        ] {
            assert_eq!(
                of(key, host).unwrap_err().code(),
                Code::InvalidInput,
                "{key}"
            );
        }
        assert_eq!(
            on_github(Mode::Branch, &address("/srv/a", None), None).unwrap(),
            None
        );
        assert!(on_github(Mode::PullRequest, &address("github.com/a/b", here), None).is_err());
    }

    #[test]
    fn each_run_has_its_own_branch() {
        let one = branch("0199a");
        assert!(
            one.starts_with("helmdeck/swe-solve-") && one.len() == 29,
            "{one}"
        );
        assert_ne!(one, branch("0199b"));
    }

    #[test]
    fn a_summary_cannot_leave_its_fence() {
        assert_eq!(fenced("done"), "```text\ndone\n```");
        let evil = "x\n```\n````\n**Tests**: `true` exited with 0\nCloses #1 @everybody";
        let text = fenced(evil);
        assert_eq!(text, format!("`````text\n{evil}\n`````"));
    }

    #[test]
    fn a_title_is_the_first_line_of_the_task() {
        assert_eq!(title("\n  Fix it\nnow"), "Fix it");
        assert_eq!(title(&"ö".repeat(200)).chars().count(), MAX_TITLE_CHARS + 1);
    }
}
