//! Close issues, and open them again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::history::{self, Record};
use super::queue::{self, ChangeKind, IssueChange};
use super::store::{self, Source, check_match};
use super::{CANCELLED, Comment, DONE, Issue, IssueChanged, Issues, OPEN, absent, check_key};
use crate::committed;
use crate::error::{Category, Error, Result};
use crate::events::{self, Subject, data};
use crate::json::Members;
use crate::layout::ISSUES;

/// How an issue is closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct CloseIssue {
    /// Reason for closing it although a criterion is open
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WHY"))]
    pub anyway: Option<String>,
    /// What was done, besides what its commits say
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 4000)))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub what: Vec<String>,
    /// Why it was done, besides what its commits say
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub why: Option<String>,
    /// What was learned, besides what its commits say
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 4000)))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub learned: Vec<String>,
    /// Whether it is closed because nobody will finish it. Its criteria may be open.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub cancelled: bool,
    /// Ids of commits that did it, besides those that name it.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub commits: Vec<String>,
}

/// An issue that was closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closed {
    /// Its key.
    pub key: String,
    /// Whether it was closed before: then nothing changed.
    pub again: bool,
    /// The file with its summary.
    pub path: String,
    /// The issue with its summary.
    pub record: Record,
}

impl Issues<'_> {
    /// Closes an issue: its summary goes to the history. Running it again changes nothing.
    ///
    /// With `if_match` only an issue with this version tag is closed.
    ///
    /// # Errors
    /// `Refused` (`E_CRITERIA`) while a criterion is open, unless a reason is given; `Stale` if the
    /// issue has another version tag; `NotFound`; `Paused`; errors from writing.
    pub fn done(&self, key: &str, done: &CloseIssue, if_match: Option<&str>) -> Result<Closed> {
        let project = self.project;
        project.check_not_paused()?;
        check_key(key).map_err(Error::usage)?;
        let find = || -> Result<Option<Issue>> { Ok(self.read()?.find(key).cloned()) };
        let Some(issue) = find()? else {
            let record = history::find(project.files(), key)?.ok_or_else(|| absent(key))?;
            let (key, path) = (
                record.issue.linear_id.clone(),
                history::path(record.issue.stem()),
            );
            return Ok(Closed {
                path,
                key,
                again: true,
                record,
            });
        };
        check_match(&issue, if_match)?;
        check_criteria(&issue, done)?;
        // Ask git before taking the lock.
        let mut work = history::work(project, &issue);
        history::add_commits(project, &mut work, &done.commits);
        let shared = committed::shared(project, ISSUES).unwrap_or_default();
        history::add(&mut work.what, done.what.iter().cloned());
        history::add(&mut work.why, done.why.iter().cloned());
        history::add(&mut work.learned, done.learned.iter().cloned());
        let environment = project.environment();
        let now = environment.now().seconds();
        let state = if done.cancelled { CANCELLED } else { DONE };
        let from = issue.state;
        let (record, path) = self.change(Source::Local, |active, names| {
            let at = active.position(key).ok_or_else(|| absent(key))?;
            let before = active.issues.remove(at);
            check_match(&before, if_match)?;
            check_criteria(&before, done)?;
            let mut after = before.clone();
            after.state = Some(state.to_owned());
            after.updated_at = Some(now);
            queue::mark_changed(&before, &mut after);
            // A merge may have left the summary of an earlier closing.
            if let Some(earlier) = history::closed(project.files(), names, &after.linear_id)? {
                history::absorb(&mut after, &earlier.issue);
            }
            let refs = after.git_refs.get_or_insert_with(Default::default);
            history::add(&mut refs.commits, done.commits.iter().cloned());
            if refs.commits.is_empty() && refs.branch.is_none() && refs.other.is_empty() {
                after.git_refs = None;
            }
            let record = Record {
                closed_at: Some(now),
                closed_by: Some(environment.agent.clone()),
                anyway: done
                    .anyway
                    .as_deref()
                    .map(helmdeck_core::text::collapse_whitespace),
                commits: done.commits.clone(),
                checkpoints: work.checkpoints.clone(),
                summary: String::new(),
                issue: after,
            };
            let path = history::path(record.issue.stem());
            let text = history::print(&record, &work)?;
            project.files().check_secrets(&path, text.as_bytes())?;
            let change = IssueChange {
                kind: ChangeKind::Update,
                before: Some(&before),
                after: &record.issue,
                comment: None,
            };
            queue::add(project, &change)?;
            // It stays open until its summary is written.
            project.files().write(&path, text.as_bytes())?;
            Ok((record, path))
        })?;
        let key = record.issue.linear_id.clone();
        // The summary holds the issue. Its own file stays where a merge can bring what others write
        // into it.
        let own = store::path(record.issue.stem());
        if !shared.contains(&own) {
            store::forget(project.files(), &own)?;
        }
        let event = data::IssueChanged {
            key: key.clone(),
            what: "done".to_owned(),
            from,
            to: record.issue.state.clone(),
        };
        events::emit(project, Subject::Linear, event);
        let mut record = history::find(project.files(), &key)?.unwrap_or(record);
        record.commits = work.commits.into_iter().map(|(oid, _)| oid).collect();
        Ok(Closed {
            key,
            again: false,
            path,
            record,
        })
    }

    /// Returns an issue if it is open and can be closed; `None` if it is closed, or unknown here.
    ///
    /// # Errors
    /// As [`Self::done`].
    pub(crate) fn closable(&self, key: &str, done: &CloseIssue) -> Result<Option<Issue>> {
        let Some(issue) = self.read()?.find(key).cloned() else {
            return Ok(None);
        };
        check_criteria(&issue, done)?;
        Ok(Some(issue))
    }

    /// Returns whether an issue is closed.
    pub(super) fn is_closed(&self, key: &str) -> Result<bool> {
        let is_open = self.read()?.find(key).is_some();
        Ok(!is_open && history::find(self.project.files(), key)?.is_some())
    }

    /// Opens an issue of the history again. An open one stays as it is.
    ///
    /// # Errors
    /// `NotFound`; `Paused`; errors from writing.
    pub fn reopen(&self, key: &str, if_match: Option<&str>) -> Result<IssueChanged> {
        let project = self.project;
        project.check_not_paused()?;
        check_key(key).map_err(Error::usage)?;
        if let Some(issue) = self.read()?.find(key).cloned() {
            return IssueChanged::of(issue, vec![format!("{key} is open")]);
        }
        let record = history::find(project.files(), key)?.ok_or_else(|| absent(key))?;
        check_match(&record.issue, if_match)?;
        let now = project.environment().now().seconds();
        let closed = record
            .closed_at
            .map(|at| format!(" on {at}"))
            .unwrap_or_default();
        let why = record
            .anyway
            .map(|why| format!(" ({why})"))
            .unwrap_or_default();
        let mut issue = record.issue;
        let from = issue.state.take();
        issue.state = Some(OPEN.to_owned());
        let text = format!("Opened again: it was closed{closed}{why}.");
        // An interrupted call may have written it.
        if !issue.comments.iter().any(|known| known.text == text) {
            issue.comments.push(Comment {
                id: project.environment().uuid().to_string(),
                by: Some(project.environment().agent.clone()),
                at: Some(now),
                text,
                other: Members::default(),
            });
        }
        let closed = Issue {
            state: from.clone(),
            ..issue.clone()
        };
        queue::mark_changed(&closed, &mut issue);
        let path = history::path(issue.stem());
        let issue = self.change(Source::Local, |active, _| {
            if !active
                .issues
                .iter()
                .any(|other| other.linear_id == issue.linear_id)
            {
                active.issues.push(issue.clone());
            }
            Ok(issue)
        })?;
        project.files().remove(&path)?;
        let event = data::IssueChanged {
            key: issue.linear_id.clone(),
            what: "reopened".to_owned(),
            from,
            to: issue.state.clone(),
        };
        events::emit(project, Subject::Linear, event);
        IssueChanged::of(issue, Vec::new())
    }
}

/// Refuses to close an issue with open criteria without a reason.
fn check_criteria(issue: &Issue, done: &CloseIssue) -> Result<()> {
    if done.cancelled
        || done
            .anyway
            .as_deref()
            .is_some_and(|why| !why.trim().is_empty())
    {
        return Ok(());
    }
    let open: Vec<String> = (1..)
        .zip(&issue.acceptance_criteria)
        .filter(|(_, criterion)| !criterion.is_done())
        .map(|(number, criterion)| format!("{number}. {}", criterion.text()))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let key = &issue.linear_id;
    let message = format!(
        "{key} is not done, for {} of its criteria are open: {}",
        open.len(),
        open.join("; ")
    );
    Err(Error::new(Category::Refused, "E_CRITERIA", message)
        .hint(format!(
            "mark what holds: helmdeck forge issue set {key} --check NUMBER; or say why it is closed all the same, \
             with --anyway"
        ))
        .next(format!("helmdeck forge issue show {key}")))
}
