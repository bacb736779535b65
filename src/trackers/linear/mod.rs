//! Linear: a client over its GraphQL API.

mod answers;
mod queries;

use async_trait::async_trait;
use helmdeck_core::text::excerpt;
use helmdeck_forge::Time;
use helmdeck_forge_documents::tracking::Field;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;
use url::Url;
use uuid::Uuid;

use self::answers::{
    Answer, Connection as Nodes, IssueLabel, LinearComment, LinearIssue, Problem, TeamAnswer, User,
    WorkflowState,
};
use self::queries::Query;
use crate::error::{Error, Kind, Result};
use crate::http::{Connection, Http, Limit, LimitHeaders, Received, Repeat, Sent};
use crate::tracker::{
    CommentPage, Directory, Edit, Issue, IssueComments, Label, Page, Person, State, Tracker,
};

/// The default endpoint.
pub const ENDPOINT: &str = "https://api.linear.app/graphql";

/// Maximum number of pages of states, labels and users.
const MAX_PAGES: usize = 50;
/// Maximum number of issues that are asked for by id at once.
const IDS: usize = 50;
/// Number of issues whose comments are asked for at once, and the maximum number of pages of them.
const COMMENTED: usize = 20;
const COMMENT_PAGES: usize = 20;
/// Maximum length of Linear's own words in a message, in bytes.
const MAX_WORDS: usize = 300;

/// The fields that Linear has. Its milestones belong to projects, not to teams.
const FIELDS: &[Field] = &[
    Field::Title,
    Field::Description,
    Field::Type,
    Field::State,
    Field::Priority,
    Field::Labels,
    Field::Assignee,
    Field::Parent,
    Field::BlockedBy,
    Field::Criteria,
];

const LIMITS: &[LimitHeaders] = &[
    LimitHeaders {
        name: "requests",
        limit: "x-ratelimit-requests-limit",
        remaining: "x-ratelimit-requests-remaining",
        reset: "x-ratelimit-requests-reset",
        unit: 1_000,
    },
    LimitHeaders {
        name: "complexity",
        limit: "x-ratelimit-complexity-limit",
        remaining: "x-ratelimit-complexity-remaining",
        reset: "x-ratelimit-complexity-reset",
        unit: 1_000,
    },
];

/// A team of Linear.
#[derive(Debug)]
pub struct Linear {
    http: Http,
    url: Url,
    team: String,
    create_labels: bool,
    directory: OnceCell<Directory>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct States {
    workflow_states: Nodes<WorkflowState>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Labels {
    issue_labels: Nodes<IssueLabel>,
}

#[derive(Deserialize)]
struct Users {
    users: Nodes<User>,
}

#[derive(Deserialize)]
struct Issues {
    issues: Nodes<LinearIssue>,
}

#[derive(Deserialize)]
struct Comments {
    comments: Nodes<LinearComment>,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    success: bool,
    issue: Option<LinearIssue>,
    #[serde(rename = "issueLabel")]
    label: Option<IssueLabel>,
}

#[derive(Deserialize)]
struct Changed {
    #[serde(
        alias = "issueCreate",
        alias = "issueUpdate",
        alias = "commentCreate",
        alias = "issueRelationCreate"
    )]
    #[serde(alias = "issueRelationDelete", alias = "issueLabelCreate")]
    payload: Payload,
}

impl Linear {
    /// Makes a client for a team, by its key. Connects to nothing yet.
    ///
    /// With `create_labels`, labels that the team lacks are created. A personal key (`lin_api_...`)
    /// is sent as it is, every other as a bearer token.
    ///
    /// # Errors
    /// `Settings` for an endpoint that is not https and not on this machine, or a team that is no
    /// key; `Auth` for a malformed key.
    pub fn new(connection: Connection, team: &str, create_labels: bool) -> Result<Self> {
        if team.trim().is_empty() {
            let message = "no team is named: set team under [linear] in .forge/config.toml, such as team = \"SX9\"";
            return Err(Error::new(Kind::Settings, message));
        }
        let key = |key: &str| match key.starts_with("lin_api_") || key.starts_with("Bearer ") {
            true => key.to_owned(),
            false => format!("Bearer {key}"),
        };
        let http = Http::new("Linear", connection, key, &[], LIMITS)?;
        let url = http.endpoint().clone();
        Ok(Self {
            http,
            url,
            team: team.trim().to_owned(),
            create_labels,
            directory: OnceCell::new(),
        })
    }

    async fn ask<T: DeserializeOwned>(&self, query: Query, variables: Value) -> Result<T> {
        let body =
            json!({"query": query.text, "operationName": query.name, "variables": variables});
        let repeat = if query.writes {
            Repeat::Once
        } else {
            Repeat::Safe
        };
        let body = body.to_string().into_bytes();
        let sent = Sent {
            method: Method::POST,
            url: &self.url,
            body: Some(&body),
            repeat,
        };
        let received = self.http.send(&sent, problem).await?;
        let answer: Answer<T> =
            serde_json::from_slice(&received.body).map_err(|error| shape(query, &error))?;
        answer.data.ok_or_else(|| {
            Error::new(
                Kind::Shape,
                format!("Linear's answer to {} has no data", query.name),
            )
        })
    }

    async fn change(&self, query: Query, variables: Value) -> Result<Payload> {
        let changed: Changed = self.ask(query, variables).await?;
        match changed.payload.success {
            true => Ok(changed.payload),
            false => Err(Error::new(
                Kind::Invalid,
                format!("Linear did not carry out {}", query.name),
            )),
        }
    }

    async fn changed_issue(&self, query: Query, variables: Value) -> Result<Issue> {
        let payload = self.change(query, variables).await?;
        let issue = payload.issue.map(Into::into);
        issue.ok_or_else(|| {
            Error::new(
                Kind::Shape,
                format!("Linear's answer to {} has no issue", query.name),
            )
        })
    }

    async fn read_directory(&self) -> Result<Directory> {
        let answer: TeamAnswer = self.ask(queries::TEAM, json!({"key": self.team})).await?;
        let Some(team) = answer.teams.nodes.into_iter().next() else {
            let message = format!(
                "the key of Linear sees no team {:?}: check team under [linear]",
                self.team
            );
            return Err(Error::new(Kind::Settings, message));
        };
        let mut directory = Directory {
            me: answer.viewer.into(),
            team_id: team.id.clone(),
            team: team.key,
            ..Directory::default()
        };
        let mut after: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page: States = self
                .ask(queries::STATES, json!({"team": team.id, "after": after}))
                .await?;
            after = page.workflow_states.next().map(str::to_owned);
            directory
                .states
                .extend(page.workflow_states.nodes.into_iter().map(State::from));
            if after.is_none() {
                break;
            }
        }
        for _ in 0..MAX_PAGES {
            let page: Labels = self
                .ask(queries::LABELS, json!({"team": team.id, "after": after}))
                .await?;
            after = page.issue_labels.next().map(str::to_owned);
            directory
                .labels
                .extend(page.issue_labels.nodes.into_iter().map(Label::from));
            if after.is_none() {
                break;
            }
        }
        for _ in 0..MAX_PAGES {
            let page: Users = self.ask(queries::USERS, json!({"after": after})).await?;
            after = page.users.next().map(str::to_owned);
            directory
                .people
                .extend(page.users.nodes.into_iter().map(Person::from));
            if after.is_none() {
                break;
            }
        }
        Ok(directory)
    }

    async fn directory(&self) -> Result<&Directory> {
        self.directory
            .get_or_try_init(|| self.read_directory())
            .await
    }

    /// Returns the ids of labels by name; creates those that are missing if that is allowed.
    async fn label_ids(&self, names: &[String]) -> Result<Vec<String>> {
        let directory = self.directory().await?;
        let mut ids = Vec::new();
        for name in names {
            let known = directory
                .labels
                .iter()
                .find(|label| label.name.to_lowercase() == name.to_lowercase());
            match known {
                Some(label) => ids.push(label.id.clone()),
                None if self.create_labels => {
                    let input = json!({"input": {"name": name, "teamId": directory.team_id}});
                    let made = self.change(queries::ADD_LABEL, input).await?.label;
                    let made = made.ok_or_else(|| {
                        Error::new(Kind::Shape, "Linear returned no label".to_owned())
                    })?;
                    ids.push(made.id);
                }
                None => {
                    let message = format!(
                        "{} has no label {name:?}: create it in Linear, or set labels = \"create\" under [linear]",
                        directory.team
                    );
                    return Err(Error::new(Kind::Settings, message));
                }
            }
        }
        Ok(ids)
    }

    /// Returns the part of an input that creating and changing share.
    fn input(edit: &Edit) -> Map<String, Value> {
        let mut input = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                input.insert(name.to_owned(), value);
            }
        };
        set("title", edit.title.clone().map(Into::into));
        set("description", edit.description.clone().map(Into::into));
        set("stateId", edit.state.clone().map(Into::into));
        set("priority", edit.priority.map(Into::into));
        set(
            "assigneeId",
            edit.assignee
                .clone()
                .map(|id| id.map_or(Value::Null, Into::into)),
        );
        set(
            "parentId",
            edit.parent
                .clone()
                .map(|id| id.map_or(Value::Null, Into::into)),
        );
        input
    }

    async fn comment_page(&self, filter: Value, cursor: Option<&str>) -> Result<CommentPage> {
        let page: Comments = self
            .ask(
                queries::COMMENTS,
                json!({"filter": filter, "after": cursor}),
            )
            .await?;
        let next = page.comments.next().map(str::to_owned);
        let comments = page
            .comments
            .nodes
            .into_iter()
            .filter_map(LinearComment::into_comment)
            .collect();
        Ok(CommentPage { comments, next })
    }

    /// Returns the issue that was created with an id, or bears its mark.
    async fn find(&self, id: Uuid) -> Result<Option<Issue>> {
        let (id, mark) = (id.to_string(), crate::mark::of(id));
        let filter = json!({"or": [{"id": {"eq": id}}, {"description": {"contains": mark}}]});
        let found: Issues = self
            .ask(queries::ISSUES, json!({"filter": filter, "after": null}))
            .await?;
        Ok(found.issues.nodes.into_iter().next().map(Into::into))
    }
}

#[async_trait]
impl Tracker for Linear {
    fn name(&self) -> &'static str {
        "Linear"
    }

    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    async fn identify(&self) -> Result<Directory> {
        self.directory().await.cloned()
    }

    async fn changed(&self, since: Option<Time>, cursor: Option<&str>) -> Result<Page> {
        let mut filter = json!({"team": {"key": {"eq": self.directory().await?.team}}});
        match since {
            Some(since) => filter["updatedAt"] = json!({"gte": since}),
            // The first time, only what is open: a team may have ten thousand issues that are done.
            None => {
                filter["state"] = json!({"type": {"nin": ["completed", "canceled", "duplicate"]}})
            }
        }
        let page: Issues = self
            .ask(queries::ISSUES, json!({"filter": filter, "after": cursor}))
            .await?;
        let next = page.issues.next().map(str::to_owned);
        Ok(Page {
            issues: page.issues.nodes.into_iter().map(Into::into).collect(),
            next,
        })
    }

    async fn fetch(&self, ids: &[String]) -> Result<Vec<Issue>> {
        let mut all = Vec::new();
        for some in ids.chunks(IDS) {
            let variables = json!({"filter": {"id": {"in": some}}, "after": null});
            let found: Issues = self.ask(queries::ISSUES, variables).await?;
            all.extend(found.issues.nodes.into_iter().map(Into::into));
        }
        Ok(all)
    }

    async fn create(&self, id: Uuid, edit: &Edit) -> Result<Issue> {
        let mut input = Self::input(edit);
        let labels = self.label_ids(&edit.labels_added).await?;
        if !labels.is_empty() {
            input.insert("labelIds".to_owned(), labels.into());
        }
        input.insert("id".to_owned(), id.to_string().into());
        input.insert(
            "teamId".to_owned(),
            self.directory().await?.team_id.clone().into(),
        );
        match self
            .changed_issue(queries::CREATE, json!({"input": input}))
            .await
        {
            // It may be there: the answer got lost, or it was created before.
            Err(error) if matches!(error.kind, Kind::Lost | Kind::Server | Kind::Invalid) => {
                self.find(id).await?.ok_or(error)
            }
            other => other,
        }
    }

    async fn update(&self, now: &Issue, edit: &Edit) -> Result<Issue> {
        let mut input = Self::input(edit);
        for (name, labels) in [
            ("addedLabelIds", &edit.labels_added),
            ("removedLabelIds", &edit.labels_removed),
        ] {
            let ids = self.label_ids(labels).await?;
            if !ids.is_empty() {
                input.insert(name.to_owned(), ids.into());
            }
        }
        self.changed_issue(queries::UPDATE, json!({"id": now.id, "input": input}))
            .await
    }

    async fn comment(&self, issue: &str, id: Uuid, body: &str) -> Result<()> {
        let input = json!({"input": {"id": id.to_string(), "issueId": issue, "body": body}});
        match self.change(queries::ADD_COMMENT, input).await {
            Err(error) if matches!(error.kind, Kind::Lost | Kind::Server | Kind::Invalid) => {
                let found = self
                    .ask::<Value>(queries::COMMENT, json!({"id": id.to_string()}))
                    .await;
                found.map(|_| ()).map_err(|_| error)
            }
            other => other.map(|_| ()),
        }
    }

    async fn comments_since(&self, since: Time, cursor: Option<&str>) -> Result<CommentPage> {
        let team = json!({"team": {"key": {"eq": self.directory().await?.team}}});
        self.comment_page(json!({"updatedAt": {"gte": since}, "issue": team}), cursor)
            .await
    }

    async fn comments_of(&self, issues: &[&Issue]) -> Result<IssueComments> {
        let mut all = IssueComments::default();
        for some in issues.chunks(COMMENTED) {
            let ids: Vec<&str> = some.iter().map(|issue| issue.id.as_str()).collect();
            let mut cursor: Option<String> = None;
            for _ in 0..COMMENT_PAGES {
                let page = self
                    .comment_page(json!({"issue": {"id": {"in": ids}}}), cursor.as_deref())
                    .await?;
                all.comments.extend(page.comments);
                cursor = page.next;
                if cursor.is_none() {
                    all.whole.extend(ids.iter().map(|id| (*id).to_owned()));
                    break;
                }
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
            (Some(relation), false) => self
                .change(queries::UNRELATE, json!({"id": relation.id}))
                .await
                .map(|_| ()),
            (None, true) => {
                let input = json!({"input": {"issueId": blocker, "relatedIssueId": now.id, "type": "blocks"}});
                self.change(queries::RELATE, input).await.map(|_| ())
            }
        }
    }

    fn now(&self) -> Option<Time> {
        self.http.now()
    }

    fn limits(&self) -> Vec<Limit> {
        self.http.limits()
    }
}

fn shape(query: Query, error: &serde_json::Error) -> Error {
    Error::new(
        Kind::Shape,
        format!(
            "Linear's answer to {} has another shape than expected: {error}",
            query.name
        ),
    )
}

/// Returns the error that an answer means. Errors of GraphQL may come with status 200.
fn problem(received: &Received) -> Option<Error> {
    #[derive(Deserialize)]
    struct Errors {
        #[serde(default)]
        errors: Vec<Problem>,
    }

    let errors = serde_json::from_slice::<Errors>(&received.body)
        .map(|body| body.errors)
        .unwrap_or_default();
    let status = received.status;
    let Some(first) = errors.first() else {
        return match status {
            _ if status.is_success() => None,
            StatusCode::UNAUTHORIZED => {
                Some(Error::new(Kind::Auth, "Linear does not accept the key"))
            }
            StatusCode::FORBIDDEN => Some(Error::new(
                Kind::Forbidden,
                "the key of Linear may not do this",
            )),
            StatusCode::TOO_MANY_REQUESTS => Some(
                Error::new(Kind::RateLimited, "Linear takes no more requests for now")
                    .after(received.retry_after()),
            ),
            _ if status.is_server_error() => {
                let error =
                    Error::new(Kind::Server, format!("Linear answered {}", status.as_u16()));
                Some(error.after(received.retry_after()))
            }
            StatusCode::PAYLOAD_TOO_LARGE => Some(Error::new(
                Kind::TooLarge,
                "the text is too long for Linear",
            )),
            _ => Some(Error::new(
                Kind::Invalid,
                format!("Linear answered {}", status.as_u16()),
            )),
        };
    };
    let said = first
        .extensions
        .user_presentable_message
        .as_deref()
        .unwrap_or(&first.message);
    let said = excerpt(said, MAX_WORDS);
    let code = first
        .extensions
        .code
        .as_deref()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let kind = first
        .extensions
        .kind
        .as_deref()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is = |codes: &[&str], kinds: &[&str]| {
        codes.contains(&code.as_str()) || kinds.contains(&kind.as_str())
    };
    let answered = first.extensions.status_code.unwrap_or(status.as_u16());
    Some(
        if is(&["RATELIMITED"], &["ratelimited"]) || answered == 429 {
            Error::new(Kind::RateLimited, "Linear takes no more requests for now")
                .after(received.retry_after())
        } else if is(
            &["AUTHENTICATION_ERROR", "UNAUTHENTICATED"],
            &["authentication error"],
        ) || answered == 401
        {
            Error::new(
                Kind::Auth,
                format!("Linear does not accept the key: {said}"),
            )
        } else if is(&["FORBIDDEN"], &["forbidden", "feature not accessible"]) || answered == 403 {
            Error::new(
                Kind::Forbidden,
                format!("Linear does not allow this: {said}"),
            )
        } else if is(&["ENTITY_NOT_FOUND", "NOT_FOUND"], &[])
            || first.message.starts_with("Entity not found")
        {
            Error::new(Kind::NotFound, format!("Linear does not know it: {said}"))
        } else if is(
            &["INTERNAL_SERVER_ERROR"],
            &["internal error", "network error", "lock timeout"],
        ) || answered >= 500
        {
            Error::new(Kind::Server, format!("Linear failed: {said}")).after(received.retry_after())
        } else {
            Error::new(Kind::Invalid, format!("Linear refuses the input: {said}"))
        },
    )
}

#[cfg(test)]
mod tests;
