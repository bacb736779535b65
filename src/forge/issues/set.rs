//! `forge.issue_set`: change an issue, comment on it, close it, open it again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::add::{IssueFields, known, set_text};
use super::close::CloseIssue;
use super::store::{self, Source};
use super::text::{body, some, title};
use super::{Active, CANCELLED, Checked, Comment, Criterion, DONE, Issue, Issues, history, lines};
use crate::error::{Error, Result};
use crate::json::Members;
use crate::project::Project;
use crate::verb::{Access, ShellVerb, Verb};

/// Change an issue, or add a comment; an empty text or list removes
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct SetIssue {
    /// Key of the issue, such as SX9-123 or LOCAL-1
    #[schemars(length(min = 1, max = 45))]
    pub key: String,
    /// What is changed.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub edit: IssueEdit,
    /// How it is closed, if the state is `Done` or `Cancelled`.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub close: CloseIssue,
    /// Etag of the issue that was read; if the issue has changed since, nothing is done
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "ETAG"))]
    pub if_match: Option<String>,
}

/// Changes of an issue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct IssueEdit {
    /// Title, in one line
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub title: Option<String>,
    /// State: Open, In Progress, Blocked, or another word. Done closes it, and so does Cancelled,
    /// because nobody will finish it: a summary goes to the history. Open opens a closed one again
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "STATE"))]
    pub state: Option<String>,
    /// Its fields.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub fields: IssueFields,
    /// Criteria that hold now, by number, from 1, or by text
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 4000)))]
    #[cfg_attr(feature = "cli", arg(long = "check", value_name = "NUMBER"))]
    pub checked: Vec<String>,
    /// What shows that they hold
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT", requires = "checked"))]
    pub evidence: Option<String>,
    /// Criteria that do not hold, by number or text
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 4000)))]
    #[cfg_attr(feature = "cli", arg(long = "uncheck", value_name = "NUMBER"))]
    pub unchecked: Vec<String>,
    /// Comment to add, in Markdown
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250_000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub comment: Option<String>,
    /// Author of the comment [default: the agent]
    // Only at a shell: a caller of a server comments under its own name.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", requires = "comment"))]
    pub by: Option<String>,
}

/// An issue that was added or changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IssueChanged {
    /// Version of the issue, for `if_match`
    pub etag: String,
    /// The issue, as stored
    pub issue: Issue,
    /// Warnings; absent if there are none
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Summary of an issue that is closed, in Markdown
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// File of the summary
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Verb for SetIssue {
    const NAME: &'static str = "forge.issue_set";
    const ACCESS: Access = Access::Change;
    type Output = IssueChanged;

    fn run(self, project: &Project) -> Result<IssueChanged> {
        let Self {
            key,
            mut edit,
            mut close,
            if_match,
        } = self;
        let issues = project.issues();
        let mut if_match = if_match.as_deref();
        let end = edit.state.take_if(|state| {
            [DONE, CANCELLED]
                .iter()
                .any(|end| state.trim().eq_ignore_ascii_case(end))
        });
        if end.is_none() && close != CloseIssue::default() {
            let message =
                "anyway, what, why and learned are for closing an issue: state = \"Done\"";
            return Err(Error::usage(message));
        }
        let mut warnings = Vec::new();
        if edit.state.is_some() && issues.is_closed(&key)? {
            warnings = issues.reopen(&key, if_match.take())?.warnings;
        }
        let Some(end) = end else {
            let mut changed = issues.set(&key, &edit, if_match)?;
            changed.warnings.splice(..0, warnings);
            return Ok(changed);
        };
        if edit != IssueEdit::default() {
            warnings = issues.set(&key, &edit, if_match.take())?.warnings;
        }
        close.cancelled = end.trim().eq_ignore_ascii_case(CANCELLED);
        let closed = issues.done(&key, &close, if_match)?;
        Ok(IssueChanged {
            etag: issues.show(&closed.key)?.etag,
            issue: closed.record.issue,
            warnings,
            summary: Some(closed.record.summary),
            path: Some(closed.path),
        })
    }
}

impl ShellVerb for SetIssue {
    fn text(changed: &IssueChanged) -> String {
        match &changed.path {
            Some(path) => format!("{} is closed: {path}", changed.issue.linear_id),
            None => changed.text(),
        }
    }
}

impl IssueEdit {
    /// Returns the change that makes an issue what it is.
    #[must_use]
    pub fn of(issue: &Issue) -> Self {
        Self {
            title: Some(issue.title.clone()),
            state: issue.state.clone(),
            fields: IssueFields::of(issue),
            ..Self::default()
        }
    }
}

impl IssueChanged {
    pub(super) fn of(issue: Issue, warnings: Vec<String>) -> Result<Self> {
        Ok(Self {
            etag: store::etag(&issue)?,
            issue,
            warnings,
            summary: None,
            path: None,
        })
    }

    /// Returns it as text for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![lines::line(&self.issue)];
        lines.extend(lines::criteria(&self.issue));
        lines.extend(
            self.warnings
                .iter()
                .map(|warning| format!("warning: {warning}")),
        );
        lines.join("\n")
    }
}

impl Issues<'_> {
    /// Changes an issue.
    ///
    /// # Errors
    /// `NotFound`; `Stale`; `Refused` for the state `Done`; as [`Self::add`].
    pub fn set(
        &self,
        key_of: &str,
        edit: &IssueEdit,
        if_match: Option<&str>,
    ) -> Result<IssueChanged> {
        self.project.check_not_paused()?;
        let state = edit.state.as_deref().unwrap_or_default();
        if state.trim().eq_ignore_ascii_case(DONE) {
            return Err(Error::refused(format!(
                "{key_of} is done when it is closed: its criteria are looked at then"
            ))
            .next(format!("helmdeck forge issue done {key_of}")));
        }
        let comment = self.new_comment(edit)?;
        let done = history::keys(self.project.files())?;
        let others = self.read()?;
        let (issue, warnings) = self.change_one(key_of, if_match, |issue| {
            if let Some(text) = &edit.title {
                issue.title = title(text)?;
            }
            set_text("state", edit.state.as_ref(), &mut issue.state)?;
            self.set_fields(&edit.fields, issue)?;
            for wanted in &edit.checked {
                mark(issue, wanted, true, edit.evidence.as_deref())?;
            }
            for wanted in &edit.unchecked {
                mark(issue, wanted, false, None)?;
            }
            issue.comments.extend(comment);
            known(&others, &done, issue)
        })?;
        IssueChanged::of(issue, warnings)
    }

    fn new_comment(&self, edit: &IssueEdit) -> Result<Option<Comment>> {
        let Some(text) = &edit.comment else {
            return Ok(None);
        };
        let environment = self.project.environment();
        let text =
            body("comment", Some(text))?.ok_or_else(|| Error::usage("a comment says something"))?;
        let by = some("by", edit.by.as_deref())?.unwrap_or_else(|| environment.agent.clone());
        Ok(Some(Comment {
            id: environment.uuid().to_string(),
            by: Some(by),
            at: Some(environment.now().seconds()),
            text,
            other: Members::default(),
        }))
    }

    /// Adds a comment of this agent to an issue.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn comment(&self, key: &str, text: &str) -> Result<IssueChanged> {
        let edit = IssueEdit {
            comment: Some(text.to_owned()),
            ..IssueEdit::default()
        };
        self.set(key, &edit, None)
    }

    /// Changes issues for a tracker: the outbox is not told.
    ///
    /// Issues that are missing afterwards are removed. The locks are held: `change` waits for
    /// nothing.
    ///
    /// # Errors
    /// The errors of `change`; `Usage` (`E_INVALID`, `E_CYCLE`), `Corrupt`, `Secret`, `Locked`.
    pub fn apply<T>(&self, change: impl FnOnce(&mut Active) -> Result<T>) -> Result<T> {
        self.change(Source::Tracker, |active, _| change(active))
    }
}

/// Marks a criterion.
fn mark(issue: &mut Issue, wanted: &str, done: bool, evidence: Option<&str>) -> Result<()> {
    let wanted = wanted.trim();
    let all = &issue.acceptance_criteria;
    let number = wanted
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_sub(1));
    let at = number
        .filter(|at| *at < all.len())
        .or_else(|| all.iter().position(|criterion| criterion.text() == wanted))
        .ok_or_else(|| {
            Error::not_found(format!("{} has no criterion {wanted:?}", issue.linear_id))
                .next(format!("helmdeck forge issue show {}", issue.linear_id))
        })?;
    let Some(slot) = issue.acceptance_criteria.get_mut(at) else {
        return Ok(());
    };
    let mut checked = match slot {
        Criterion::Text(text) => Checked {
            text: text.clone(),
            ..Checked::default()
        },
        Criterion::Checked(checked) => checked.clone(),
    };
    checked.done = done;
    if evidence.is_some() {
        checked.evidence = some("evidence", evidence)?;
    }
    *slot = Criterion::Checked(checked);
    Ok(())
}
