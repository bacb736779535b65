//! Shapes of GitHub's answers. Unknown members are ignored.

use helmdeck_forge::Time;
use helmdeck_forge::git::closing;
use serde::Deserialize;

use super::states::{CANCELLED, DONE, OPEN, Started, is_state};
use crate::tracker::{Comment, Issue, Label, Person, Relation};

#[derive(Debug, Deserialize)]
pub(super) struct User {
    login: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct RestLabel {
    name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Milestone {
    number: u64,
    title: String,
}

/// An event on the timeline of an issue.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    event: Option<String>,
    commit_id: Option<String>,
    source: Option<Source>,
}

#[derive(Debug, Deserialize)]
struct Source {
    issue: Option<Mention>,
}

/// An issue or pull request that mentions another.
#[derive(Debug, Deserialize)]
struct Mention {
    number: u64,
    title: Option<String>,
    body: Option<String>,
    pull_request: Option<MergedPull>,
}

#[derive(Debug, Deserialize)]
struct MergedPull {
    merged_at: Option<Time>,
}

/// A pull request.
#[derive(Debug, Deserialize)]
pub(super) struct Pull {
    pub(super) merge_commit_sha: Option<String>,
}

/// Returns the commit that closed an issue last, or else the merged pull request that did.
pub(super) fn closing(
    events: &[Event],
    number: u64,
    repository: &str,
) -> (Option<String>, Option<u64>) {
    let closed = events
        .iter()
        .rev()
        .find(|event| event.event.as_deref() == Some("closed"));
    if let Some(commit) = closed.and_then(|event| event.commit_id.clone()) {
        return (Some(commit), None);
    }
    let mentions = events
        .iter()
        .rev()
        .filter_map(|event| event.source.as_ref()?.issue.as_ref());
    let closes = |mention: &&Mention| {
        let text = [&mention.title, &mention.body]
            .map(|text| text.as_deref().unwrap_or_default())
            .join("\n");
        let is_merged = mention
            .pull_request
            .as_ref()
            .is_some_and(|pull| pull.merged_at.is_some());
        is_merged && closing::numbers(&text, repository).any(|one| one == number)
    };
    (
        None,
        mentions
            .filter(|_| closed.is_some())
            .find(closes)
            .map(|mention| mention.number),
    )
}

#[derive(Debug, Deserialize)]
struct Dependencies {
    #[serde(default)]
    total_blocked_by: u64,
}

/// An issue, as GitHub answers it. Pull requests are issues too.
#[derive(Debug, Deserialize)]
pub(super) struct RestIssue {
    /// The id of the database, which relations need.
    pub(super) id: u64,
    pub(super) number: u64,
    title: String,
    body: Option<String>,
    html_url: String,
    state: String,
    state_reason: Option<String>,
    #[serde(default)]
    labels: Vec<RestLabel>,
    #[serde(default)]
    assignees: Vec<User>,
    milestone: Option<Milestone>,
    created_at: Option<Time>,
    updated_at: Option<Time>,
    closed_at: Option<Time>,
    /// `.../issues/12`, if it is a sub-issue.
    parent_issue_url: Option<String>,
    issue_dependencies_summary: Option<Dependencies>,
    pub(super) pull_request: Option<serde::de::IgnoredAny>,
    /// The number of comments.
    comments: Option<u64>,
}

/// A comment, as GitHub answers it.
#[derive(Debug, Deserialize)]
pub(super) struct RestComment {
    id: u64,
    body: Option<String>,
    user: Option<User>,
    created_at: Option<Time>,
    updated_at: Option<Time>,
    /// `.../issues/12`
    issue_url: String,
}

impl From<RestComment> for Comment {
    fn from(comment: RestComment) -> Self {
        Self {
            id: format!("github-{}", comment.id),
            issue: comment
                .issue_url
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned(),
            by: comment.user.map(Into::into),
            at: comment.created_at,
            edited_at: comment
                .updated_at
                .filter(|at| Some(*at) != comment.created_at),
            text: comment.body.unwrap_or_default().replace("\r\n", "\n"),
            deleted: false,
        }
    }
}

impl From<User> for Person {
    fn from(user: User) -> Self {
        Self {
            id: user.login.clone(),
            name: user.login,
            others: Vec::new(),
        }
    }
}

impl From<Milestone> for Label {
    fn from(milestone: Milestone) -> Self {
        Self {
            id: milestone.number.to_string(),
            name: milestone.title,
        }
    }
}

impl From<RestLabel> for Label {
    fn from(label: RestLabel) -> Self {
        Self {
            id: label.name.clone(),
            name: label.name,
        }
    }
}

impl RestIssue {
    /// Says whether issues block it, which takes another request to read.
    pub(super) fn is_blocked(&self) -> bool {
        self.issue_dependencies_summary
            .as_ref()
            .is_some_and(|summary| summary.total_blocked_by > 0)
    }

    /// Returns the names of its labels.
    pub(super) fn label_names(self) -> Vec<String> {
        self.labels.into_iter().map(|label| label.name).collect()
    }

    /// Returns the number of its parent.
    pub(super) fn parent(&self) -> Option<u64> {
        self.parent_issue_url
            .as_ref()?
            .rsplit('/')
            .next()?
            .parse()
            .ok()
    }

    /// Returns the neutral issue. `blockers` are those that were read.
    pub(super) fn into_issue(
        self,
        prefix: &str,
        team: &str,
        started: &[Started],
        blockers: Option<Vec<Self>>,
    ) -> Issue {
        let has = |one: &&Started| {
            self.labels
                .iter()
                .any(|label| label.name.eq_ignore_ascii_case(&one.label))
        };
        // The last one is the furthest.
        let state = match (self.state.as_str(), self.state_reason.as_deref()) {
            ("closed", Some("not_planned" | "duplicate")) => CANCELLED.state(),
            ("closed", _) => DONE.state(),
            _ => started
                .iter()
                .rev()
                .find(has)
                .map_or_else(|| OPEN.state(), Started::state),
        };
        let key = |number: u64| format!("{prefix}-{number}");
        let blocked_by = match (&blockers, self.issue_dependencies_summary.is_some()) {
            (Some(blockers), _) => Some(blockers.iter().map(|one| key(one.number)).collect()),
            (None, true) => Some(Vec::new()),
            // An older server does not say.
            (None, false) => None,
        };
        let relation = |one: Self| Relation {
            id: one.id.to_string(),
            blocker: one.number.to_string(),
            key: key(one.number),
        };
        let labels = self.labels.iter().map(|label| label.name.clone());
        Issue {
            id: self.number.to_string(),
            key: key(self.number),
            team: team.to_owned(),
            parent: self.parent().map(key),
            title: self.title,
            description: self.body.unwrap_or_default().replace("\r\n", "\n"),
            state,
            labels: Some(labels.filter(|name| !is_state(started, name)).collect()),
            assignee: self.assignees.into_iter().next().map(Into::into),
            relations: blockers.into_iter().flatten().map(relation).collect(),
            blocked_by,
            url: self.html_url,
            milestone: self.milestone.map(|milestone| milestone.title),
            created_at: self.created_at,
            updated_at: self.updated_at,
            completed_at: self.closed_at,
            comment_count: self.comments,
            ..Issue::default()
        }
    }
}
