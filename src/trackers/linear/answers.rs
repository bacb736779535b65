//! Shapes of Linear's answers. Unknown members are ignored.

use helmdeck_forge::Time;
use serde::Deserialize;

use crate::tracker::{Comment, Issue, Label, Person, Relation, State, StateKind};

/// A whole answer.
#[derive(Debug, Deserialize)]
pub(super) struct Answer<T> {
    pub(super) data: Option<T>,
}

/// An error inside an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) extensions: Extensions,
}

/// What Linear says of an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Extensions {
    pub(super) code: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) status_code: Option<u16>,
    pub(super) user_presentable_message: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Connection<T> {
    pub(super) nodes: Vec<T>,
    #[serde(rename = "pageInfo")]
    pub(super) page: Option<PageInfo>,
}

impl<T> Connection<T> {
    /// Returns the cursor of the next page.
    pub(super) fn next(&self) -> Option<&str> {
        self.page
            .as_ref()
            .filter(|page| page.has_next_page)?
            .end_cursor
            .as_deref()
    }

    fn is_whole(&self) -> bool {
        !self.page.as_ref().is_some_and(|page| page.has_next_page)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TeamAnswer {
    pub(super) viewer: User,
    pub(super) teams: Connection<Team>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Team {
    pub(super) id: String,
    pub(super) key: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct User {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    display_name: String,
    #[serde(default)]
    email: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct WorkflowState {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct IssueLabel {
    pub(super) id: String,
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Key {
    identifier: String,
}

#[derive(Debug, Deserialize)]
struct TeamKey {
    key: String,
}

#[derive(Debug, Deserialize)]
struct AnsweredRelation {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    issue: Blocker,
}

#[derive(Debug, Deserialize)]
struct Blocker {
    id: String,
    identifier: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinearIssue {
    id: String,
    identifier: String,
    #[serde(default)]
    previous_identifiers: Vec<String>,
    title: String,
    description: Option<String>,
    url: String,
    priority: f64,
    branch_name: Option<String>,
    created_at: Option<Time>,
    updated_at: Time,
    completed_at: Option<Time>,
    archived_at: Option<Time>,
    trashed: Option<bool>,
    state: WorkflowState,
    team: TeamKey,
    assignee: Option<User>,
    parent: Option<Key>,
    labels: Connection<IssueLabel>,
    inverse_relations: Connection<AnsweredRelation>,
}

#[derive(Debug, Deserialize)]
struct Id {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinearComment {
    id: String,
    body: String,
    created_at: Option<Time>,
    edited_at: Option<Time>,
    archived_at: Option<Time>,
    issue: Option<Id>,
    user: Option<User>,
    bot_actor: Option<Named>,
    external_user: Option<Named>,
}

impl LinearComment {
    /// Returns the neutral comment; `None` if it is not on an issue.
    pub(super) fn into_comment(self) -> Option<Comment> {
        let other = self
            .external_user
            .or(self.bot_actor)
            .and_then(|other| other.name);
        let other = other.map(|name| Person {
            name,
            ..Person::default()
        });
        Some(Comment {
            id: self.id,
            issue: self.issue?.id,
            by: self.user.map(Into::into).or(other),
            at: self.created_at,
            edited_at: self.edited_at,
            text: self.body.replace("\r\n", "\n"),
            deleted: self.archived_at.is_some(),
        })
    }
}

impl From<User> for Person {
    fn from(user: User) -> Self {
        let others = [user.display_name, user.email]
            .into_iter()
            .filter(|name| !name.is_empty())
            .collect();
        Self {
            id: user.id,
            name: user.name,
            others,
        }
    }
}

impl From<WorkflowState> for State {
    fn from(state: WorkflowState) -> Self {
        let kind = match state.kind.as_str() {
            "started" => StateKind::Started,
            "completed" => StateKind::Completed,
            "canceled" | "cancelled" | "duplicate" => StateKind::Cancelled,
            _ => StateKind::Open,
        };
        Self {
            id: state.id,
            name: state.name,
            kind,
        }
    }
}

impl From<IssueLabel> for Label {
    fn from(label: IssueLabel) -> Self {
        Self {
            id: label.id,
            name: label.name,
        }
    }
}

impl From<LinearIssue> for Issue {
    fn from(issue: LinearIssue) -> Self {
        let labels = issue.labels.is_whole().then(|| {
            issue
                .labels
                .nodes
                .iter()
                .map(|label| label.name.clone())
                .collect()
        });
        let is_whole = issue.inverse_relations.is_whole();
        let relations: Vec<_> = issue
            .inverse_relations
            .nodes
            .into_iter()
            .filter(|one| one.kind == "blocks")
            .collect();
        let blocked_by = is_whole.then(|| {
            relations
                .iter()
                .map(|one| one.issue.identifier.clone())
                .collect()
        });
        let relation = |one: AnsweredRelation| Relation {
            id: one.id,
            blocker: one.issue.id,
            key: one.issue.identifier,
        };
        let relations = relations.into_iter().map(relation).collect();
        Self {
            id: issue.id,
            key: issue.identifier,
            earlier_keys: issue.previous_identifiers,
            team: issue.team.key,
            title: issue.title,
            description: issue.description.unwrap_or_default().replace("\r\n", "\n"),
            state: issue.state.into(),
            priority: Some(
                (0..=4)
                    .find(|one| f64::from(*one) == issue.priority.trunc())
                    .unwrap_or(0),
            ),
            labels,
            assignee: issue.assignee.map(Into::into),
            parent: issue.parent.map(|parent| parent.identifier),
            blocked_by,
            relations,
            url: issue.url,
            branch: issue.branch_name,
            created_at: issue.created_at,
            updated_at: Some(issue.updated_at),
            completed_at: issue.completed_at,
            milestone: None,
            comment_count: None,
            closed_by: None,
            archived: issue.archived_at.is_some() || issue.trashed == Some(true),
        }
    }
}
