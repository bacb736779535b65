//! The contract of a tracker, and its issues in neutral terms.

use std::collections::BTreeSet;
use std::fmt::Debug;

use async_trait::async_trait;
use helmdeck_forge::Time;
use helmdeck_forge_documents::tracking::Field;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Result;
use crate::http::Limit;

/// An issue tracker.
///
/// All names are the tracker's: its states, labels and people. The mapping to the words of a
/// project is in
/// [`crate::mapping`].
#[async_trait]
pub trait Tracker: Debug + Send + Sync {
    /// Returns its name: `Linear`.
    fn name(&self) -> &'static str;

    /// Returns the fields that it has.
    fn fields(&self) -> &'static [Field];

    /// Returns the key's owner, the team, and the team's states, labels and people.
    ///
    /// # Errors
    /// `Auth`, `Settings` if the team is not found, and the errors of the connection.
    async fn identify(&self) -> Result<Directory>;

    /// Returns a page of the team's issues changed since a time, all open ones without a time.
    ///
    /// `cursor` is the one of the page before.
    ///
    /// # Errors
    /// The errors of the connection.
    async fn changed(&self, since: Option<Time>, cursor: Option<&str>) -> Result<Page>;

    /// Returns issues by their ids. Those that do not exist are left out.
    ///
    /// # Errors
    /// The errors of the connection.
    async fn fetch(&self, ids: &[String]) -> Result<Vec<Issue>>;

    /// Creates an issue. The same `id` twice makes one issue, also if the answer to the first got
    /// lost.
    ///
    /// # Errors
    /// `Invalid`, `Forbidden`, and the errors of the connection.
    async fn create(&self, id: Uuid, edit: &Edit) -> Result<Issue>;

    /// Changes fields of an issue, and returns it as it is then. `now` is the issue as it was just
    /// read.
    ///
    /// # Errors
    /// `Invalid`, `Forbidden`, `NotFound`, and the errors of the connection.
    async fn update(&self, now: &Issue, edit: &Edit) -> Result<Issue>;

    /// Adds a comment. The same `id` twice makes one comment.
    ///
    /// # Errors
    /// As [`Self::update`].
    async fn comment(&self, issue: &str, id: Uuid, body: &str) -> Result<()>;

    /// Returns a page of the comments changed since a time, on any issue of the team.
    ///
    /// `cursor` is the one of the page before.
    ///
    /// # Errors
    /// The errors of the connection.
    async fn comments_since(&self, since: Time, cursor: Option<&str>) -> Result<CommentPage>;

    /// Returns the comments of issues, at least the newest 200 of each.
    ///
    /// # Errors
    /// The errors of the connection.
    async fn comments_of(&self, issues: &[&Issue]) -> Result<IssueComments>;

    /// Adds or removes the relation "`blocker` blocks `now`", by the blocker's id.
    ///
    /// # Errors
    /// As [`Self::update`].
    async fn relate(&self, now: &Issue, blocker: &str, on: bool) -> Result<()>;

    /// Returns the commit that closed an issue, for example by a merge; `None` if none did.
    ///
    /// # Errors
    /// The errors of the connection.
    async fn closed_by(&self, _issue: &Issue) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the maximum length of a description, in characters.
    fn max_description(&self) -> usize {
        crate::mapping::MAX_DESCRIPTION
    }

    /// Returns the tracker's time, as it last said.
    fn now(&self) -> Option<Time>;

    /// Returns the rate limits as last reported.
    fn limits(&self) -> Vec<Limit>;
}

/// The key's owner, the team, and the team's states, labels and people.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Directory {
    /// The key's owner.
    pub me: Person,
    /// The team's id.
    pub team_id: String,
    /// The team's key or the repository: `SX9`, `owner/name`.
    pub team: String,
    /// The states.
    pub states: Vec<State>,
    /// The labels.
    pub labels: Vec<Label>,
    /// The people that an issue can be assigned to.
    pub people: Vec<Person>,
    /// The milestones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<Label>,
}

/// A state of a team's workflow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct State {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: StateKind,
}

/// Kind of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Not started: backlog, triage, unstarted.
    #[default]
    Open,
    /// Started.
    Started,
    /// Completed.
    Completed,
    /// Cancelled, or a duplicate.
    Cancelled,
}

impl StateKind {
    /// Says whether nothing is left to do.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }
}

/// A label.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Label {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Person {
    /// The id.
    pub id: String,
    /// The name.
    pub name: String,
    /// Other names: the display name, the e-mail address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

impl Person {
    /// Says whether a text names the person: id, name or another name, in any case of letters.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        let all = self.others.iter().chain([&self.id, &self.name]);
        all.into_iter()
            .any(|name| !name.is_empty() && name.to_lowercase() == text.trim().to_lowercase())
    }
}

/// An issue of a tracker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Issue {
    /// Its permanent id.
    pub id: String,
    /// The key people use: `SX9-123`. It changes when the issue moves to another team.
    pub key: String,
    /// Keys that it had before.
    pub earlier_keys: Vec<String>,
    /// The key of its team.
    pub team: String,
    /// The title.
    pub title: String,
    /// The description, in Markdown.
    pub description: String,
    /// The state.
    pub state: State,
    /// 1 = urgent to 4 = low, 0 = none; `None` if the tracker has no priorities.
    pub priority: Option<u8>,
    /// The names of its labels; `None` if not all were read.
    pub labels: Option<Vec<String>>,
    /// The assignee.
    pub assignee: Option<Person>,
    /// The key of the issue that it is part of.
    pub parent: Option<String>,
    /// The keys of the issues that block it; `None` if not all were read.
    pub blocked_by: Option<Vec<String>>,
    /// The relations by which they do so.
    pub relations: Vec<Relation>,
    /// The address for people.
    pub url: String,
    /// The branch that the tracker proposes.
    pub branch: Option<String>,
    /// The milestone.
    pub milestone: Option<String>,
    /// When it was created.
    pub created_at: Option<Time>,
    /// When it was last changed, by the tracker's clock.
    pub updated_at: Option<Time>,
    /// When it was completed.
    pub completed_at: Option<Time>,
    /// Whether it is archived or in the trash.
    pub archived: bool,
    /// The commit that closed it, as [`Tracker::closed_by`] says.
    pub closed_by: Option<String>,
    /// Number of its comments; `None` if the tracker does not say.
    pub comment_count: Option<u64>,
}

/// A relation by which an issue blocks another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relation {
    /// The id of the relation.
    pub id: String,
    /// The id of the issue that blocks.
    pub blocker: String,
    /// Its key.
    pub key: String,
}

/// A comment of a tracker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comment {
    /// Its permanent id, of letters, digits and `-`.
    pub id: String,
    /// The id of its issue.
    pub issue: String,
    /// The author.
    pub by: Option<Person>,
    /// When it was made.
    pub at: Option<Time>,
    /// When it was last edited; `None` if it never was.
    pub edited_at: Option<Time>,
    /// The text, in Markdown.
    pub text: String,
    /// Whether it was deleted.
    pub deleted: bool,
}

/// A page of comments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommentPage {
    /// The comments.
    pub comments: Vec<Comment>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// The comments of some issues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IssueComments {
    /// The comments.
    pub comments: Vec<Comment>,
    /// The ids of the issues whose comments are all there: what is missing was deleted.
    pub whole: BTreeSet<String>,
}

/// A page of issues.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The issues.
    pub issues: Vec<Issue>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// Changes of an issue. `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Edit {
    /// The title.
    pub title: Option<String>,
    /// The whole description.
    pub description: Option<String>,
    /// The id of the state.
    pub state: Option<String>,
    /// The priority.
    pub priority: Option<u8>,
    /// The names of labels to add.
    pub labels_added: Vec<String>,
    /// The names of labels to remove.
    pub labels_removed: Vec<String>,
    /// The id of the assignee; `Some(None)` for nobody.
    pub assignee: Option<Option<String>>,
    /// The id of the parent; `Some(None)` for none.
    pub parent: Option<Option<String>>,
    /// The name of the milestone; `Some(None)` for none.
    pub milestone: Option<Option<String>>,
}

impl Edit {
    /// Says whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
