//! What the stand-in keeps, and what its fields return.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use super::execute::{page, whole};

/// The error of a field: its code, and Linear's words.
pub(super) type Refused = (&'static str, String);
pub(super) type Answer = Result<Value, Refused>;

/// An issue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MockIssue {
    /// The id.
    pub id: String,
    /// The key.
    pub key: String,
    /// Earlier keys.
    pub earlier: Vec<String>,
    /// The key of the team.
    pub team: String,
    /// The title.
    pub title: String,
    /// The description.
    pub description: String,
    /// The name of the state.
    pub state: String,
    /// The priority.
    pub priority: u8,
    /// The names of the labels.
    pub labels: BTreeSet<String>,
    /// The name of the assignee.
    pub assignee: Option<String>,
    /// The id of the parent.
    pub parent: Option<String>,
    /// When it was last changed: seconds of the stand-in's clock.
    pub updated: i64,
    /// Whether it is archived.
    pub archived: bool,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The id.
    pub id: String,
    /// The id of the issue.
    pub issue: String,
    /// The text.
    pub body: String,
    /// The name of the author.
    pub by: String,
    /// When it was made, last edited, and last changed at all: seconds of the stand-in's clock.
    pub made: i64,
    /// See `made`.
    pub edited: Option<i64>,
    /// See `made`.
    pub updated: i64,
    /// Whether it is archived.
    pub archived: bool,
}

/// Everything that the stand-in keeps.
#[derive(Debug, Default)]
pub struct Store {
    /// The issues, in the order of their creation.
    pub issues: Vec<MockIssue>,
    /// The comments.
    pub comments: Vec<Comment>,
    /// Relations `blocks`: id, id of the blocker, id of the blocked issue.
    pub relations: Vec<(String, String, String)>,
    /// The states: name and type.
    pub states: Vec<(String, String)>,
    /// The names of the labels.
    pub labels: Vec<String>,
    /// The people: name and e-mail address.
    pub people: Vec<(String, String)>,
    /// Issues on a page. Default: 50.
    pub page: usize,
    /// The clock: seconds. Every change advances it by one.
    pub now: i64,
    /// Whether ids given by callers are ignored, as an old server might.
    pub ignores_ids: bool,
    /// The number of the last issue.
    pub last: u32,
}

/// Seconds of 2026-01-01T00:00:00Z.
pub(super) const BEGIN: i64 = 1_767_225_600;

fn id_of(name: &str) -> String {
    let mut bytes = [0x40_u8; 16];
    for (at, byte) in name.bytes().enumerate() {
        bytes[at % 16] = bytes[at % 16].rotate_left(3) ^ byte;
    }
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}

pub(super) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(BEGIN + seconds)
        .map(|time| format!("{time:.3}"))
        .unwrap_or_default()
}

impl Store {
    /// Returns the clock, as a header says it.
    pub(super) fn date(&self) -> String {
        let now = jiff::Timestamp::from_second(BEGIN + self.now).unwrap_or_default();
        now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    /// Makes the team `SX9`, with its states, labels and people.
    #[must_use]
    pub fn with_team() -> Self {
        let states = [
            ("Backlog", "backlog"),
            ("Todo", "unstarted"),
            ("In Progress", "started"),
            ("In Review", "started"),
            ("Done", "completed"),
            ("Canceled", "canceled"),
        ];
        let people = [("Ada", "ada@example.com"), ("Grace", "grace@example.com")];
        let owned = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
        Self {
            states: states.map(owned).into(),
            people: people.map(owned).into(),
            labels: ["Feature", "Bug", "Task", "Chore", "backend", "ui"]
                .map(str::to_owned)
                .into(),
            page: 50,
            ..Self::default()
        }
    }

    /// Returns an issue by its key or id.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&MockIssue> {
        self.issues
            .iter()
            .find(|issue| issue.key == key || issue.id == key)
    }

    /// Changes an issue by its key or id, as a person does in the web page.
    ///
    /// # Panics
    /// If it is not found.
    #[allow(clippy::expect_used, reason = "a test names issues that exist")]
    pub fn edit(&mut self, key: &str, change: impl FnOnce(&mut MockIssue)) {
        self.now += 1;
        let now = self.now;
        let issue = self
            .issues
            .iter_mut()
            .find(|issue| issue.key == key || issue.id == key)
            .expect("an issue");
        change(issue);
        issue.updated = now;
    }

    /// Creates an issue with a title, as a person does in the web page. Returns its key.
    pub fn add(&mut self, title: &str) -> String {
        let issue = MockIssue {
            title: title.to_owned(),
            state: "Todo".to_owned(),
            ..MockIssue::default()
        };
        self.insert(issue)
    }

    fn insert(&mut self, mut issue: MockIssue) -> String {
        self.now += 1;
        self.last += 1;
        issue.key = format!("SX9-{}", self.last);
        issue.team = "SX9".to_owned();
        issue.updated = self.now;
        if issue.id.is_empty() {
            issue.id = id_of(&issue.key);
        }
        let key = issue.key.clone();
        self.issues.push(issue);
        key
    }

    /// Returns the value of a field of the root; `None` if the stand-in does not know it.
    pub(super) fn resolve(&mut self, field: &str, arguments: &Value) -> Option<Answer> {
        let input = &arguments["input"];
        Some(match field {
            "viewer" => Ok(self.person("Ada")),
            "teams" => Ok(self.teams(arguments)),
            "workflowStates" => Ok(whole(
                "WorkflowStateConnection",
                self.states
                    .iter()
                    .map(|(name, _)| self.state(name))
                    .collect(),
            )),
            "issueLabels" => Ok(whole(
                "IssueLabelConnection",
                self.labels.iter().map(|name| label(name)).collect(),
            )),
            "users" => Ok(whole(
                "UserConnection",
                self.people
                    .iter()
                    .map(|(name, _)| self.person(name))
                    .collect(),
            )),
            "issues" => self.list(arguments),
            "comments" => self.list_comments(arguments),
            "comment" => {
                let found = self
                    .comments
                    .iter()
                    .find(|comment| arguments["id"] == comment.id.as_str());
                found
                    .map(|one| json!({"__typename": "Comment", "id": one.id}))
                    .ok_or_else(|| absent("Comment"))
            }
            "issueCreate" => self.create(input),
            "issueUpdate" => self.update(arguments["id"].as_str().unwrap_or_default(), input),
            "commentCreate" => self.comment(input),
            "issueRelationCreate" => self.relate(input),
            "issueRelationDelete" => {
                let before = self.relations.len();
                self.relations
                    .retain(|(id, ..)| arguments["id"] != id.as_str());
                let success = self.relations.len() < before;
                if success {
                    Ok(json!({"__typename": "DeletePayload", "success": true}))
                } else {
                    Err(absent("IssueRelation"))
                }
            }
            "issueLabelCreate" => {
                let name = input["name"].as_str().unwrap_or_default().to_owned();
                self.labels.push(name.clone());
                Ok(
                    json!({"__typename": "IssueLabelPayload", "success": true, "issueLabel": label(&name)}),
                )
            }
            _ => return None,
        })
    }

    fn teams(&self, arguments: &Value) -> Value {
        let wanted = arguments["filter"]["key"]["eqIgnoreCase"]
            .as_str()
            .unwrap_or_default();
        let team =
            json!({"__typename": "Team", "id": id_of("SX9"), "key": "SX9", "name": "Sixnine"});
        whole(
            "TeamConnection",
            if wanted.eq_ignore_ascii_case("SX9") {
                vec![team]
            } else {
                Vec::new()
            },
        )
    }

    fn state(&self, name: &str) -> Value {
        let at = self
            .states
            .iter()
            .position(|(known, _)| known == name)
            .unwrap_or_default();
        let (name, kind) = &self.states[at];
        json!({"__typename": "WorkflowState", "id": id_of(name), "name": name, "type": kind, "position": float(at)})
    }

    pub(super) fn person(&self, name: &str) -> Value {
        let email = self
            .people
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, email)| email.clone());
        json!({"__typename": "User", "id": id_of(name), "name": name, "displayName": name.to_lowercase(), "email": email})
    }

    fn render(&self, issue: &MockIssue) -> Value {
        let key = |id: &str| self.find(id).map(|one| one.key.clone()).unwrap_or_default();
        let relations = self
            .relations
            .iter()
            .filter(|(_, _, blocked)| *blocked == issue.id)
            .map(|(id, blocker, _)| {
                let blocker =
                    json!({"__typename": "Issue", "id": blocker, "identifier": key(blocker)});
                json!({"__typename": "IssueRelation", "id": id, "type": "blocks", "issue": blocker})
            });
        let completed = (issue.state == "Done").then(|| time(issue.updated));
        let parent = issue
            .parent
            .as_ref()
            .map(|id| json!({"__typename": "Issue", "identifier": key(id)}));
        json!({
            "__typename": "Issue", "id": issue.id, "identifier": issue.key, "previousIdentifiers": issue.earlier,
            "title": issue.title, "description": issue.description, "priority": f64::from(issue.priority),
            "url": format!("https://linear.app/sixnine/issue/{}", issue.key),
            "branchName": format!("ada/{}", issue.key.to_lowercase()),
            "createdAt": time(0), "updatedAt": time(issue.updated), "completedAt": completed,
            "archivedAt": issue.archived.then(|| time(issue.updated)), "trashed": null,
            "state": self.state(&issue.state), "team": {"__typename": "Team", "key": issue.team},
            "assignee": issue.assignee.as_ref().map(|name| self.person(name)), "parent": parent,
            "labels": whole("IssueLabelConnection", issue.labels.iter().map(|name| label(name)).collect()),
            "inverseRelations": whole("IssueRelationConnection", relations.collect()),
        })
    }

    fn list(&self, arguments: &Value) -> Answer {
        let filter = &arguments["filter"];
        let mut found = Vec::new();
        for issue in &self.issues {
            if self.matches(issue, filter)? {
                found.push(issue);
            }
        }
        found.sort_by_key(|issue| std::cmp::Reverse(issue.updated));
        let from: usize = arguments["after"]
            .as_str()
            .and_then(|cursor| cursor.parse().ok())
            .unwrap_or_default();
        let first = arguments["first"]
            .as_u64()
            .and_then(|first| usize::try_from(first).ok())
            .unwrap_or(50);
        let first = first.min(self.page);
        let nodes = found
            .iter()
            .skip(from)
            .take(first)
            .map(|issue| self.render(issue))
            .collect();
        let next = (from + first < found.len()).then(|| (from + first).to_string());
        Ok(page("IssueConnection", nodes, next))
    }

    /// Says whether an issue matches a filter. A filter that the stand-in does not know is an
    /// error.
    fn matches(&self, issue: &MockIssue, filter: &Value) -> Result<bool, Refused> {
        let Some(members) = filter.as_object() else {
            return Ok(true);
        };
        for (name, wanted) in members {
            let listed = |member: &str, value: &str| {
                wanted[member]
                    .as_array()
                    .map(|all| all.iter().any(|one| one == value))
            };
            let state = self.states.iter().find(|(known, _)| *known == issue.state);
            let fits = match name.as_str() {
                "team" => wanted["key"]["eq"] == issue.team.as_str(),
                "id" => match listed("in", &issue.id) {
                    Some(is) => is,
                    None => wanted["eq"] == issue.id.as_str(),
                },
                "updatedAt" => {
                    let since: Option<jiff::Timestamp> =
                        wanted["gte"].as_str().and_then(|time| time.parse().ok());
                    since.is_some_and(|since| since.as_second() <= BEGIN + issue.updated)
                }
                "state" => {
                    let kind = state.map(|(_, kind)| kind.as_str()).unwrap_or_default();
                    !wanted["type"]["nin"]
                        .as_array()
                        .is_some_and(|all| all.iter().any(|one| one == kind))
                }
                "description" => wanted["contains"]
                    .as_str()
                    .is_some_and(|part| issue.description.contains(part)),
                "or" => {
                    let mut any = false;
                    for one in wanted.as_array().into_iter().flatten() {
                        any |= self.matches(issue, one)?;
                    }
                    any
                }
                other => {
                    return Err((
                        "INPUT_ERROR",
                        format!("the stand-in knows no filter {other}"),
                    ));
                }
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Applies an input to an issue.
    fn apply(&self, issue: &mut MockIssue, input: &Value) -> Result<(), Refused> {
        let name_of = |names: Vec<&String>, id: &Value, what: &str| {
            names
                .into_iter()
                .find(|name| *id == id_of(name).as_str())
                .cloned()
                .ok_or_else(|| absent(what))
        };
        for (name, value) in input.as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default().to_owned();
            match name.as_str() {
                "id" | "teamId" => {}
                "title" if text.trim().is_empty() => {
                    return Err(("INPUT_ERROR", "title should not be empty".into()));
                }
                "title" => issue.title = text,
                "description" if text.chars().count() > 250_000 => {
                    return Err((
                        "INPUT_ERROR",
                        "description must be shorter than 250000 characters".into(),
                    ));
                }
                "description" => issue.description = text,
                "stateId" => {
                    issue.state = name_of(
                        self.states.iter().map(|(name, _)| name).collect(),
                        value,
                        "State",
                    )?
                }
                "priority" => {
                    issue.priority = u8::try_from(value.as_u64().unwrap_or(9)).unwrap_or(9)
                }
                "assigneeId" if value.is_null() => issue.assignee = None,
                "assigneeId" => {
                    issue.assignee = Some(name_of(
                        self.people.iter().map(|(name, _)| name).collect(),
                        value,
                        "User",
                    )?);
                }
                "parentId" if value.is_null() => issue.parent = None,
                "parentId" => {
                    issue.parent = Some(self.find(&text).ok_or_else(|| absent("Issue"))?.id.clone())
                }
                "labelIds" | "addedLabelIds" | "removedLabelIds" => {
                    for id in value.as_array().into_iter().flatten() {
                        let label = name_of(self.labels.iter().collect(), id, "IssueLabel")?;
                        if name == "removedLabelIds" {
                            issue.labels.remove(&label)
                        } else {
                            issue.labels.insert(label)
                        };
                    }
                }
                other => {
                    return Err((
                        "INPUT_ERROR",
                        format!("the stand-in knows no input {other}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, input: &Value) -> Answer {
        if input["teamId"] != id_of("SX9").as_str() {
            return Err(absent("Team"));
        }
        let mut issue = MockIssue {
            state: "Backlog".to_owned(),
            ..MockIssue::default()
        };
        self.apply(&mut issue, input)?;
        if let Some(id) = input["id"].as_str().filter(|_| !self.ignores_ids) {
            if Uuid::parse_str(id).is_err() {
                return Err(("INPUT_ERROR", "id must be a UUID".into()));
            }
            if self.find(id).is_some() {
                return Err((
                    "INPUT_ERROR",
                    "conflict on insert of Issue: Entity already exists".into(),
                ));
            }
            issue.id = id.to_owned();
        }
        let key = self.insert(issue);
        self.payload(&key)
    }

    fn update(&mut self, id: &str, input: &Value) -> Answer {
        let mut issue = self.find(id).cloned().ok_or_else(|| absent("Issue"))?;
        self.apply(&mut issue, input)?;
        let key = issue.key.clone();
        self.edit(&key, |kept| *kept = issue);
        self.payload(&key)
    }

    fn payload(&self, key: &str) -> Answer {
        let issue = self.find(key).map(|issue| self.render(issue));
        Ok(
            json!({"__typename": "IssuePayload", "success": true, "issue": issue, "lastSyncId": float(self.last)}),
        )
    }

    fn comment(&mut self, input: &Value) -> Answer {
        let issue = self
            .find(input["issueId"].as_str().unwrap_or_default())
            .ok_or_else(|| absent("Issue"))?
            .id
            .clone();
        let id = input["id"].as_str().map_or_else(
            || id_of(&format!("c{}", self.comments.len())),
            str::to_owned,
        );
        if self.comments.iter().any(|comment| comment.id == id) {
            return Err((
                "INPUT_ERROR",
                "conflict on insert of Comment: Entity already exists".into(),
            ));
        }
        let body = input["body"].as_str().unwrap_or_default().to_owned();
        self.now += 1;
        let (made, by) = (self.now, "Ada".to_owned());
        self.comments.push(Comment {
            id: id.clone(),
            issue,
            body,
            by,
            made,
            edited: None,
            updated: made,
            archived: false,
        });
        Ok(
            json!({"__typename": "CommentPayload", "success": true, "comment": {"__typename": "Comment", "id": id}}),
        )
    }

    fn relate(&mut self, input: &Value) -> Answer {
        let find = |name: &str| {
            self.find(input[name].as_str().unwrap_or_default())
                .map(|one| one.key.clone())
                .ok_or_else(|| absent("Issue"))
        };
        let (blocker, blocked) = (find("issueId")?, find("relatedIssueId")?);
        let ids = [&blocker, &blocked]
            .map(|key| self.find(key).map(|one| one.id.clone()).unwrap_or_default());
        let [blocker, blocked_id] = ids;
        let id = id_of(&format!("{blocker}>{blocked_id}"));
        self.relations.push((id.clone(), blocker, blocked_id));
        self.edit(&blocked, |_| ());
        let relation = json!({"__typename": "IssueRelation", "id": id});
        Ok(
            json!({"__typename": "IssueRelationPayload", "success": true, "issueRelation": relation}),
        )
    }
}

fn absent(what: &str) -> Refused {
    (
        "INPUT_ERROR",
        format!("Entity not found: {what} - Could not find referenced {what}."),
    )
}

/// A number that the schema calls a float.
fn float(number: impl TryInto<u32>) -> f64 {
    f64::from(number.try_into().unwrap_or_default())
}

fn label(name: &str) -> Value {
    json!({"__typename": "IssueLabel", "id": id_of(name), "name": name})
}
