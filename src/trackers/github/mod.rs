//! Issues of a GitHub repository, over the REST API.
//!
//! Labels stand for types, and for states of issues in progress. Sub-issues are parents,
//! dependencies are blockers. Pull requests are left out; those that close an issue name its
//! commit.

mod answers;
mod requests;
mod states;

use async_trait::async_trait;
use helmdeck_forge::Time;
use helmdeck_forge::config::GithubConfig;
use helmdeck_forge_documents::tracking::Field;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;
use url::Url;
use uuid::Uuid;

use self::answers::{Event, Milestone, Pull, RestComment, RestIssue, RestLabel, User};
use self::requests::{PER_PAGE, gone, has_next, parse, shape};
use self::states::{CANCELLED, DONE, OPEN, Plain, Started};
use crate::error::{Error, Kind, Result};
use crate::http::{Connection, Http, Limit, LimitHeaders};
use crate::tracker::{CommentPage, Directory, Edit, Issue, IssueComments, Page, Tracker};

/// The default root of the REST API.
pub const ENDPOINT: &str = "https://api.github.com";

/// The fields that GitHub has.
const FIELDS: &[Field] = &[
    Field::Title,
    Field::Description,
    Field::Type,
    Field::State,
    Field::Labels,
    Field::Assignee,
    Field::Parent,
    Field::BlockedBy,
    Field::Criteria,
    Field::Milestone,
];
/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 65_536;
/// Number of pages of comments that are read of an issue, less one.
const COMMENT_PAGES: u64 = 2;

const HEADERS: &[(&str, &str)] = &[("x-github-api-version", "2022-11-28")];
const LIMITS: &[LimitHeaders] = &[LimitHeaders {
    name: "requests",
    limit: "x-ratelimit-limit",
    remaining: "x-ratelimit-remaining",
    reset: "x-ratelimit-reset",
    unit: 1_000_000,
}];

/// The issues of a repository.
#[derive(Debug)]
pub struct GitHub {
    http: Http,
    root: Url,
    owner: String,
    repository: String,
    prefix: String,
    started: Vec<Started>,
    creates: bool,
    directory: OnceCell<Directory>,
}

impl GitHub {
    /// Makes a client for a repository. Connects to nothing yet.
    ///
    /// With `creates`, milestones that the repository lacks are created.
    ///
    /// # Errors
    /// `Settings` for an endpoint that is not https and not on this machine, or a malformed
    /// repository or prefix; `Auth` for a malformed token.
    pub fn new(connection: Connection, settings: &GithubConfig, creates: bool) -> Result<Self> {
        let given = settings.repository.as_deref().unwrap_or_default();
        let plain = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let Some((owner, repository)) = given
            .split_once('/')
            .filter(|(one, two)| plain(one) && plain(two))
        else {
            let message = "no repository is named: set repository under [github] in .forge/config.toml: \"owner/name\"";
            return Err(Error::new(Kind::Settings, message));
        };
        let prefix = settings.prefix.as_deref().unwrap_or("GH").to_owned();
        if !helmdeck_forge::issues::is_key(&format!("{prefix}-1"))
            || prefix == helmdeck_forge::issues::LOCAL
        {
            let message = format!(
                "prefix under [github] is {prefix:?}: write one to ten capital letters, such as \"GH\""
            );
            return Err(Error::new(Kind::Settings, message));
        }
        let http = Http::new(
            "GitHub",
            connection,
            |key| format!("Bearer {key}"),
            HEADERS,
            LIMITS,
        )?;
        let root = http.endpoint().clone();
        let started = states::started(settings);
        let (owner, repository) = (owner.to_owned(), repository.to_owned());
        Ok(Self {
            http,
            root,
            owner,
            repository,
            prefix,
            started,
            creates,
            directory: OnceCell::new(),
        })
    }

    async fn read_directory(&self) -> Result<Directory> {
        let me: User = self.get(&self.url(&["user"], &[])?).await?;
        let labels = self.list::<RestLabel>(&["labels"]).await?;
        let people = self.list::<User>(&["assignees"]).await?;
        let milestones = self.list::<Milestone>(&["milestones"]).await?;
        let started = self.started.iter().map(Started::state);
        let states = [OPEN.state()]
            .into_iter()
            .chain(started)
            .chain([DONE, CANCELLED].map(Plain::state));
        Ok(Directory {
            me: me.into(),
            team_id: self.team(),
            team: self.team(),
            states: states.collect(),
            labels: labels.into_iter().map(Into::into).collect(),
            people: people.into_iter().map(Into::into).collect(),
            milestones: milestones.into_iter().map(Into::into).collect(),
        })
    }

    /// Reads what an answer does not hold, and returns the neutral issue.
    async fn whole(&self, issue: RestIssue) -> Result<Issue> {
        let blockers = if issue.is_blocked() {
            let number = issue.number.to_string();
            Some(
                self.list(&["issues", &number, "dependencies", "blocked_by"])
                    .await?,
            )
        } else {
            None
        };
        Ok(issue.into_issue(&self.prefix, &self.team(), &self.started, blockers))
    }

    async fn read(&self, number: &str) -> Result<RestIssue> {
        self.get(&self.below(&["issues", number], &[])?).await
    }

    /// Returns the issue that bears the mark of an id.
    ///
    /// GitHub takes no ids of callers, so the newest issues are searched.
    async fn find(&self, id: Uuid) -> Result<Option<RestIssue>> {
        let query = [
            ("state", "all"),
            ("sort", "created"),
            ("direction", "desc"),
            ("per_page", PER_PAGE),
        ];
        let newest: Vec<Value> = self.get(&self.below(&["issues"], &query)?).await?;
        let marked = |issue: &Value| issue["body"].as_str().and_then(crate::mark::id) == Some(id);
        newest
            .into_iter()
            .find(marked)
            .map(|issue| serde_json::from_value(issue).map_err(|error| shape(&error)))
            .transpose()
    }

    /// Returns the part of a body that creating and changing share.
    fn input(edit: &Edit) -> Map<String, Value> {
        let mut input = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                input.insert(name.to_owned(), value);
            }
        };
        set("title", edit.title.clone().map(Into::into));
        set("body", edit.description.clone().map(Into::into));
        set(
            "assignees",
            edit.assignee
                .clone()
                .map(|login| json!(login.into_iter().collect::<Vec<_>>())),
        );
        input
    }

    /// Adds the milestone of an edit to the body of a request; creates one that is missing if that
    /// is allowed.
    async fn put_milestone(&self, edit: &Edit, input: &mut Map<String, Value>) -> Result<()> {
        let Some(milestone) = &edit.milestone else {
            return Ok(());
        };
        let number = match milestone {
            None => Value::Null,
            Some(name) => {
                let directory = self
                    .directory
                    .get_or_try_init(|| self.read_directory())
                    .await?;
                let known = directory
                    .milestones
                    .iter()
                    .find(|one| one.name.to_lowercase() == name.to_lowercase());
                match known.and_then(|one| one.id.parse::<u64>().ok()) {
                    Some(number) => number.into(),
                    None if self.creates => {
                        let url = self.below(&["milestones"], &[])?;
                        let made = self
                            .send(Method::POST, &url, Some(&json!({"title": name})))
                            .await?;
                        parse::<Value>(&made)?["number"].clone()
                    }
                    None => {
                        let message = format!("{} has no milestone {name:?}", self.team());
                        return Err(Error::new(Kind::Settings, message));
                    }
                }
            }
        };
        input.insert("milestone".to_owned(), number);
        Ok(())
    }

    /// Brings labels, the state and the parent of an issue to what an edit says.
    async fn finish(&self, number: u64, edit: &Edit, is_new: bool) -> Result<()> {
        let number = number.to_string();
        let (mut added, mut removed) = (edit.labels_added.clone(), edit.labels_removed.clone());
        if let Some(state) = &edit.state {
            let label = self
                .started
                .iter()
                .find(|one| one.id == *state)
                .map(|one| one.label.clone());
            if !is_new {
                let has = self.read(&number).await?.label_names();
                let others = has
                    .into_iter()
                    .filter(|name| states::is_state(&self.started, name));
                removed.extend(others.filter(|name| {
                    !label
                        .as_ref()
                        .is_some_and(|one| one.eq_ignore_ascii_case(name))
                }));
            }
            added.extend(label);
        }
        if !added.is_empty() {
            let url = self.below(&["issues", &number, "labels"], &[])?;
            self.send(Method::POST, &url, Some(&json!({"labels": added})))
                .await?;
        }
        for name in removed {
            let url = self.below(&["issues", &number, "labels", &name], &[])?;
            gone(self.send(Method::DELETE, &url, None).await)?;
        }
        if let Some(parent) = &edit.parent {
            self.set_parent(&number, parent.as_deref()).await?;
        }
        Ok(())
    }

    async fn set_parent(&self, number: &str, parent: Option<&str>) -> Result<()> {
        let issue = self.read(number).await?;
        let body = json!({"sub_issue_id": issue.id, "replace_parent": true});
        match (parent, issue.parent()) {
            (Some(parent), known)
                if known.map(|known| known.to_string()).as_deref() != Some(parent) =>
            {
                let url = self.below(&["issues", parent, "sub_issues"], &[])?;
                self.send(Method::POST, &url, Some(&body)).await.map(drop)
            }
            (None, Some(known)) => {
                let url = self.below(&["issues", &known.to_string(), "sub_issue"], &[])?;
                let body = json!({"sub_issue_id": issue.id});
                gone(self.send(Method::DELETE, &url, Some(&body)).await)
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Tracker for GitHub {
    fn name(&self) -> &'static str {
        "GitHub"
    }

    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    async fn identify(&self) -> Result<Directory> {
        self.directory
            .get_or_try_init(|| self.read_directory())
            .await
            .cloned()
    }

    async fn changed(&self, since: Option<Time>, cursor: Option<&str>) -> Result<Page> {
        let since = since.map(|since| since.seconds().to_string());
        let page = cursor.unwrap_or("1");
        let mut query = vec![
            ("sort", "updated"),
            ("direction", "desc"),
            ("per_page", PER_PAGE),
            ("page", page),
        ];
        match &since {
            Some(since) => query.extend([("state", "all"), ("since", since.as_str())]),
            None => query.push(("state", "open")),
        }
        let received = self
            .send(Method::GET, &self.below(&["issues"], &query)?, None)
            .await?;
        let next = has_next(&received).then(|| (page.parse::<u32>().unwrap_or(1) + 1).to_string());
        let mut issues = Vec::new();
        for issue in parse::<Vec<RestIssue>>(&received)? {
            if issue.pull_request.is_none() {
                issues.push(self.whole(issue).await?);
            }
        }
        Ok(Page { issues, next })
    }

    async fn fetch(&self, ids: &[String]) -> Result<Vec<Issue>> {
        let mut all = Vec::new();
        for id in ids {
            match self.read(id).await {
                Ok(issue) => all.push(self.whole(issue).await?),
                Err(error) if error.kind == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    async fn create(&self, id: Uuid, edit: &Edit) -> Result<Issue> {
        let made = match self.find(id).await? {
            Some(made) => made,
            None => {
                let mut input = Self::input(edit);
                self.put_milestone(edit, &mut input).await?;
                let input = Value::Object(input);
                let url = self.below(&["issues"], &[])?;
                match self
                    .send(Method::POST, &url, Some(&input))
                    .await
                    .and_then(|received| parse(&received))
                {
                    Err(error) if matches!(error.kind, Kind::Lost | Kind::Server) => {
                        self.find(id).await?.ok_or(error)?
                    }
                    other => other?,
                }
            }
        };
        let number = made.number;
        self.finish(number, edit, true).await?;
        // GitHub creates open issues only.
        if let Some(state @ ("completed" | "not_planned")) = edit.state.as_deref() {
            let url = self.below(&["issues", &number.to_string()], &[])?;
            self.send(
                Method::PATCH,
                &url,
                Some(&json!({"state": "closed", "state_reason": state})),
            )
            .await?;
        }
        self.whole(self.read(&number.to_string()).await?).await
    }

    async fn update(&self, now: &Issue, edit: &Edit) -> Result<Issue> {
        let mut input = Self::input(edit);
        self.put_milestone(edit, &mut input).await?;
        if let Some(state) = &edit.state {
            let (state, reason) = match state.as_str() {
                "completed" => ("closed", json!("completed")),
                "not_planned" => ("closed", json!("not_planned")),
                _ if now.state.kind.is_over() => ("open", json!("reopened")),
                _ => ("open", Value::Null),
            };
            input.insert("state".to_owned(), state.into());
            input.insert("state_reason".to_owned(), reason);
        }
        if !input.is_empty() {
            let url = self.below(&["issues", &now.id], &[])?;
            self.send(Method::PATCH, &url, Some(&Value::Object(input)))
                .await?;
        }
        let number = now
            .id
            .parse()
            .map_err(|_| Error::new(Kind::Shape, format!("{:?} is no number", now.id)))?;
        self.finish(number, edit, false).await?;
        self.whole(self.read(&now.id).await?).await
    }

    async fn comment(&self, issue: &str, id: Uuid, body: &str) -> Result<()> {
        let there: Vec<Value> = self.list(&["issues", issue, "comments"]).await?;
        if there
            .iter()
            .any(|one| one["body"].as_str().and_then(crate::mark::id) == Some(id))
        {
            return Ok(());
        }
        let url = self.below(&["issues", issue, "comments"], &[])?;
        let body = json!({"body": crate::mark::add(body, id)});
        self.send(Method::POST, &url, Some(&body)).await.map(drop)
    }

    async fn comments_since(&self, since: Time, cursor: Option<&str>) -> Result<CommentPage> {
        let (since, page) = (since.seconds().to_string(), cursor.unwrap_or("1"));
        let query = [
            ("since", since.as_str()),
            ("sort", "updated"),
            ("direction", "asc"),
            ("per_page", PER_PAGE),
            ("page", page),
        ];
        let received = self
            .send(
                Method::GET,
                &self.below(&["issues", "comments"], &query)?,
                None,
            )
            .await?;
        let next = has_next(&received).then(|| (page.parse::<u32>().unwrap_or(1) + 1).to_string());
        let comments = parse::<Vec<RestComment>>(&received)?
            .into_iter()
            .map(Into::into)
            .collect();
        Ok(CommentPage { comments, next })
    }

    async fn comments_of(&self, issues: &[&Issue]) -> Result<IssueComments> {
        let mut all = IssueComments::default();
        for issue in issues {
            // The oldest come first: of many, only the last pages are read.
            let pages = issue.comment_count.unwrap_or(1).div_ceil(100);
            let first = pages.saturating_sub(COMMENT_PAGES).max(1);
            for page in first..=pages {
                let query = [
                    ("per_page", PER_PAGE.to_owned()),
                    ("page", page.to_string()),
                ];
                let query = query
                    .each_ref()
                    .map(|(name, value)| (*name, value.as_str()));
                let read: Vec<RestComment> = self
                    .get(&self.below(&["issues", &issue.id, "comments"], &query)?)
                    .await?;
                all.comments.extend(read.into_iter().map(Into::into));
            }
            if first == 1 {
                all.whole.insert(issue.id.clone());
            }
        }
        Ok(all)
    }

    async fn relate(&self, now: &Issue, blocker: &str, on: bool) -> Result<()> {
        let known = now
            .relations
            .iter()
            .find(|relation| relation.blocker == blocker);
        match (known, on) {
            (Some(_), true) | (None, false) => Ok(()),
            (Some(relation), false) => {
                let url = self.below(
                    &[
                        "issues",
                        &now.id,
                        "dependencies",
                        "blocked_by",
                        &relation.id,
                    ],
                    &[],
                )?;
                gone(self.send(Method::DELETE, &url, None).await)
            }
            (None, true) => {
                let id = self.read(blocker).await?.id;
                let url = self.below(&["issues", &now.id, "dependencies", "blocked_by"], &[])?;
                self.send(Method::POST, &url, Some(&json!({"issue_id": id})))
                    .await
                    .map(drop)
            }
        }
    }

    async fn closed_by(&self, issue: &Issue) -> Result<Option<String>> {
        let events: Vec<Event> = self.list(&["issues", &issue.id, "timeline"]).await?;
        match answers::closing(&events, issue.id.parse().unwrap_or_default(), &self.team()) {
            (None, Some(number)) => {
                let url = self.below(&["pulls", &number.to_string()], &[])?;
                Ok(self.get::<Pull>(&url).await?.merge_commit_sha)
            }
            (commit, _) => Ok(commit),
        }
    }

    fn max_description(&self) -> usize {
        MAX_DESCRIPTION
    }

    fn now(&self) -> Option<Time> {
        self.http.now()
    }

    fn limits(&self) -> Vec<Limit> {
        self.http.limits()
    }
}

#[cfg(test)]
mod tests;
