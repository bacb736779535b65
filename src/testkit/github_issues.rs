//! Stand-in for the issues of a GitHub repository on loopback, in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::small_http::{Request, answer, read};

/// Seconds of 2026-01-01T00:00:00Z.
const BEGIN: i64 = 1_767_225_600;

/// An issue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HubIssue {
    /// The number.
    pub number: u64,
    /// The title.
    pub title: String,
    /// The body.
    pub body: String,
    /// Whether it is closed.
    pub closed: bool,
    /// The reason of the state.
    pub reason: Option<String>,
    /// The labels.
    pub labels: BTreeSet<String>,
    /// The login of the assignee.
    pub assignee: Option<String>,
    /// The number of the parent.
    pub parent: Option<u64>,
    /// The numbers of the issues that block it.
    pub blocked_by: BTreeSet<u64>,
    /// Whether it is a pull request.
    pub pull_request: bool,
    /// The title of the milestone.
    pub milestone: Option<String>,
    /// The comments.
    pub comments: Vec<HubComment>,
    /// The timeline, as GitHub answers it.
    pub timeline: Vec<Value>,
    updated: i64,
}

/// A comment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HubComment {
    /// The id.
    pub id: u64,
    /// The login of the author.
    pub by: String,
    /// The text.
    pub body: String,
    made: i64,
    updated: i64,
}

/// A fault of an answer.
#[derive(Debug, Clone)]
pub enum HubFault {
    /// Answers with a status and headers, without carrying out the request.
    Http(u16, Vec<(String, String)>),
    /// Closes the connection without carrying out the request.
    CutBefore,
    /// Carries out the request and closes the connection without an answer.
    CutAfter,
}

/// When a fault occurs: at a request whose method and target contain a text, after so many others
/// of it.
#[derive(Debug)]
struct Due {
    request: String,
    skip: usize,
    fault: HubFault,
}

/// What the stand-in keeps.
#[derive(Debug, Default)]
pub struct HubStore {
    /// The issues.
    pub issues: Vec<HubIssue>,
    /// Items on a page. Default: 100.
    pub page: usize,
    now: i64,
    /// Requests that it does not know.
    pub unknown: Vec<String>,
    /// Whether the next answer to a `POST` is not sent.
    pub cut_next_post: bool,
    /// The titles of the milestones; their numbers count from 1.
    pub milestones: Vec<String>,
    /// The commits of merged pull requests, by number.
    pub merged: BTreeMap<u64, String>,
    /// Received requests: method and target.
    pub asked: Vec<String>,
    faults: VecDeque<Due>,
    comments: u64,
}

/// The stand-in. It ends with the process.
#[derive(Debug, Clone)]
pub struct GitHubIssues {
    port: u16,
    store: Arc<Mutex<HubStore>>,
}

/// Added to a number to make the id that the database has.
const ID: u64 = 1_000_000;

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl GitHubIssues {
    /// Starts one for the repository `acme/app`.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let store = Arc::new(Mutex::new(HubStore {
            page: 100,
            ..HubStore::default()
        }));
        let hub = Self { port, store };
        let serving = hub.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serving.serve(&stream);
            }
        });
        hub
    }

    /// Returns the root of its API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Reads or changes what it keeps.
    pub fn with<T>(&self, work: impl FnOnce(&mut HubStore) -> T) -> T {
        work(&mut self.store.lock())
    }

    /// Returns an issue.
    ///
    /// # Panics
    /// If it is not found.
    #[must_use]
    pub fn issue(&self, number: u64) -> HubIssue {
        self.with(|store| {
            store
                .issues
                .iter()
                .find(|issue| issue.number == number)
                .cloned()
        })
        .expect("an issue")
    }

    /// Makes a fault occur at a request that contains a text (`GET /repos`), after `skip` others of
    /// it.
    pub fn fail(&self, request: &str, skip: usize, fault: HubFault) {
        self.store.lock().faults.push_back(Due {
            request: request.to_owned(),
            skip,
            fault,
        });
    }

    /// Drops the faults that have not occurred.
    pub fn forget_faults(&self) {
        self.store.lock().faults.clear();
    }

    fn serve(&self, stream: &TcpStream) {
        let Some(request) = read(stream) else { return };
        let mut store = self.store.lock();
        let line = format!("{} {}", request.method, request.target);
        store.asked.push(line.clone());
        let fault = store.due(&line);
        match &fault {
            Some(HubFault::Http(status, headers)) => {
                return answer(
                    stream,
                    *status,
                    headers,
                    r#"{"message": "words of GitHub"}"#,
                );
            }
            Some(HubFault::CutBefore) => return,
            Some(HubFault::CutAfter) | None => {}
        }
        if !request.authorization.starts_with("Bearer token-") {
            return answer(stream, 401, &[], r#"{"message": "Bad credentials"}"#);
        }
        let (status, mut headers, body) = store.handle(&request, &self.url());
        headers.push(("date".to_owned(), store.date()));
        if matches!(fault, Some(HubFault::CutAfter)) {
            return;
        }
        if request.method == "POST" && std::mem::take(&mut store.cut_next_post) {
            return;
        }
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        answer(stream, status, &headers, &body);
    }
}

impl HubStore {
    /// Adds an issue as a person does. Returns its number.
    pub fn add(&mut self, title: &str) -> u64 {
        self.now += 1;
        let number = self.issues.len() as u64 + 1;
        let issue = HubIssue {
            number,
            title: title.to_owned(),
            updated: self.now,
            ..HubIssue::default()
        };
        self.issues.push(issue);
        number
    }

    /// Changes an issue as a person does.
    ///
    /// # Panics
    /// If it is not found.
    #[allow(clippy::expect_used, reason = "a test names issues that exist")]
    pub fn edit(&mut self, number: u64, change: impl FnOnce(&mut HubIssue)) {
        self.now += 1;
        let issue = self
            .issues
            .iter_mut()
            .find(|issue| issue.number == number)
            .expect("an issue");
        change(issue);
        issue.updated = self.now;
    }

    /// Adds a comment to an issue as a person does.
    pub fn say(&mut self, number: u64, by: &str, body: &str) {
        self.comments += 1;
        let (id, made) = (self.comments, self.now + 1);
        let comment = HubComment {
            id,
            by: by.to_owned(),
            body: body.to_owned(),
            made,
            updated: made,
        };
        self.edit(number, |issue| issue.comments.push(comment));
    }

    /// Edits a comment as a person does, by its place.
    pub fn edit_comment(&mut self, number: u64, at: usize, body: &str) {
        let updated = self.now + 1;
        self.edit(number, |issue| {
            if let Some(comment) = issue.comments.get_mut(at) {
                body.clone_into(&mut comment.body);
                comment.updated = updated;
            }
        });
    }

    /// Closes an issue by the merge of a pull request, whose text names it.
    pub fn merge(&mut self, pull: u64, number: u64, commit: &str) {
        self.merged.insert(pull, commit.to_owned());
        let mention = json!({"number": pull, "title": "A change", "body": format!("Closes #{number}"),
                             "pull_request": {"merged_at": "2026-01-01T00:00:00Z"}});
        self.edit(number, |issue| {
            (issue.closed, issue.reason) = (true, Some("completed".to_owned()));
            issue.timeline.push(
                json!({"event": "cross-referenced", "source": {"type": "issue", "issue": mention}}),
            );
            issue
                .timeline
                .push(json!({"event": "closed", "commit_id": null}));
        });
    }

    /// Takes the fault that is due at a request.
    fn due(&mut self, line: &str) -> Option<HubFault> {
        for at in 0..self.faults.len() {
            if line.contains(&self.faults[at].request) {
                if self.faults[at].skip == 0 {
                    return self.faults.remove(at).map(|due| due.fault);
                }
                self.faults[at].skip -= 1;
            }
        }
        None
    }

    /// Returns the clock, as a header says it.
    fn date(&self) -> String {
        let now = jiff::Timestamp::from_second(BEGIN + self.now).unwrap_or_default();
        now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    fn handle(&mut self, request: &Request, root: &str) -> (u16, Vec<(String, String)>, Value) {
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        let decoded = path.replace("%20", " ");
        let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let number = |text: &str| text.parse::<u64>().unwrap_or_default();
        let ok = |value: Value| (200, Vec::new(), value);
        let labels = ["bug", "feature", "in progress", "review", "ui"];
        let absent = (404, Vec::new(), json!({"message": "Not Found"}));
        let rest = match parts.as_slice() {
            ["user"] => return ok(json!({"login": "ada"})),
            ["repos", "acme", "app", rest @ ..] => rest,
            _ => return absent,
        };
        let known =
            |store: &Self, wanted: u64| store.issues.iter().any(|issue| issue.number == wanted);
        match (request.method.as_str(), rest) {
            ("GET", ["labels"]) => ok(labels
                .map(|name| json!({"name": name}))
                .into_iter()
                .collect()),
            ("GET", ["assignees"]) => ok(json!([{"login": "ada"}, {"login": "grace"}])),
            ("GET", ["milestones"]) => ok(self
                .milestones
                .iter()
                .map(|title| self.milestone(title))
                .collect()),
            ("POST", ["milestones"]) => {
                let title = body["title"].as_str().unwrap_or_default().to_owned();
                self.milestones.push(title.clone());
                (201, Vec::new(), self.milestone(&title))
            }
            ("GET", ["pulls", one]) => {
                ok(json!({"merge_commit_sha": self.merged.get(&number(one))}))
            }
            ("GET", ["issues"]) => self.list(query, root),
            ("GET", ["issues", "comments"]) => self.list_comments(query, root),
            ("POST", ["issues"]) => {
                if body["body"]
                    .as_str()
                    .is_some_and(|text| text.chars().count() > 65_536)
                {
                    return (
                        422,
                        Vec::new(),
                        json!({"message": "body is too long (maximum is 65536 characters)"}),
                    );
                }
                let made = self.add(body["title"].as_str().unwrap_or_default());
                let milestones = self.milestones.clone();
                self.edit(made, |issue| patch(issue, &body, &milestones));
                (201, Vec::new(), self.render(made, root))
            }
            (_, ["issues", one, ..]) if !known(self, number(one)) => absent,
            ("GET", ["issues", one]) => ok(self.render(number(one), root)),
            ("PATCH", ["issues", one]) => {
                let milestones = self.milestones.clone();
                self.edit(number(one), |issue| patch(issue, &body, &milestones));
                ok(self.render(number(one), root))
            }
            ("POST", ["issues", one, "labels"]) => {
                let names: Vec<String> =
                    serde_json::from_value(body["labels"].clone()).unwrap_or_default();
                self.edit(number(one), |issue| issue.labels.extend(names));
                ok(json!([]))
            }
            ("DELETE", ["issues", one, "labels", name]) => {
                self.edit(number(one), |issue| {
                    issue.labels.retain(|label| label != name)
                });
                ok(json!([]))
            }
            ("GET", ["issues", one, "comments"]) => {
                let found = self.issues.iter().find(|issue| issue.number == number(one));
                let comments = found.into_iter().flat_map(|issue| &issue.comments);
                ok(comments
                    .map(|comment| render_comment(comment, number(one), root))
                    .collect())
            }
            ("POST", ["issues", one, "comments"]) => {
                self.say(
                    number(one),
                    "ada",
                    body["body"].as_str().unwrap_or_default(),
                );
                (201, Vec::new(), json!({}))
            }
            ("GET", ["issues", one, "timeline"]) => {
                let found = self.issues.iter().find(|issue| issue.number == number(one));
                ok(found
                    .into_iter()
                    .flat_map(|issue| issue.timeline.clone())
                    .collect())
            }
            ("POST", ["issues", one, "sub_issues"]) => {
                let child = body["sub_issue_id"].as_u64().unwrap_or_default() - ID;
                self.edit(child, |issue| issue.parent = Some(number(one)));
                (201, Vec::new(), json!({}))
            }
            ("DELETE", ["issues", _, "sub_issue"]) => {
                let child = body["sub_issue_id"].as_u64().unwrap_or_default() - ID;
                self.edit(child, |issue| issue.parent = None);
                ok(json!({}))
            }
            ("GET", ["issues", one, "dependencies", "blocked_by"]) => {
                let found = self.issues.iter().find(|issue| issue.number == number(one));
                let blockers: Vec<u64> = found
                    .into_iter()
                    .flat_map(|issue| issue.blocked_by.iter().copied())
                    .collect();
                ok(blockers
                    .into_iter()
                    .map(|blocker| self.render(blocker, root))
                    .collect())
            }
            ("POST", ["issues", one, "dependencies", "blocked_by"]) => {
                let blocker = body["issue_id"].as_u64().unwrap_or_default() - ID;
                self.edit(number(one), |issue| issue.blocked_by.extend([blocker]));
                (201, Vec::new(), json!({}))
            }
            ("DELETE", ["issues", one, "dependencies", "blocked_by", id]) => {
                let blocker = number(id) - ID;
                self.edit(number(one), |issue| {
                    issue.blocked_by.retain(|one| *one != blocker)
                });
                ok(json!({}))
            }
            (method, _) => {
                self.unknown.push(format!("{method} {path}"));
                absent
            }
        }
    }

    fn list(&self, query: &str, root: &str) -> (u16, Vec<(String, String)>, Value) {
        let value = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let since = value("since").map(|text| text.replace("%3A", ":"));
        let since: Option<jiff::Timestamp> = since.and_then(|text| text.parse().ok());
        let is = |issue: &&HubIssue| {
            (value("state") == Some("all") || !issue.closed)
                && since.is_none_or(|since| since.as_second() <= BEGIN + issue.updated)
        };
        let mut found: Vec<&HubIssue> = self.issues.iter().filter(is).collect();
        match value("sort") {
            Some("created") => found.sort_by_key(|issue| std::cmp::Reverse(issue.number)),
            _ => found.sort_by_key(|issue| std::cmp::Reverse(issue.updated)),
        }
        let page: usize = value("page")
            .and_then(|page| page.parse().ok())
            .unwrap_or(1);
        let from = (page - 1) * self.page;
        let items: Value = found
            .iter()
            .skip(from)
            .take(self.page)
            .map(|issue| self.render(issue.number, root))
            .collect();
        let mut headers = Vec::new();
        if from + self.page < found.len() {
            headers.push((
                "link".to_owned(),
                format!(
                    "<{root}/repos/acme/app/issues?page={}>; rel=\"next\"",
                    page + 1
                ),
            ));
        }
        (200, headers, items)
    }

    fn milestone(&self, title: &str) -> Value {
        let at = self
            .milestones
            .iter()
            .position(|known| known == title)
            .unwrap_or_default();
        json!({"number": at + 1, "title": title})
    }

    fn list_comments(&self, query: &str, root: &str) -> (u16, Vec<(String, String)>, Value) {
        let value = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let since: Option<jiff::Timestamp> = value("since")
            .map(|text| text.replace("%3A", ":"))
            .and_then(|text| text.parse().ok());
        let all = self
            .issues
            .iter()
            .flat_map(|issue| issue.comments.iter().map(|one| (one, issue.number)));
        let mut found: Vec<_> = all
            .filter(|(one, _)| since.is_none_or(|since| since.as_second() <= BEGIN + one.updated))
            .collect();
        found.sort_by_key(|(one, _)| one.updated);
        (
            200,
            Vec::new(),
            found
                .into_iter()
                .map(|(one, number)| render_comment(one, number, root))
                .collect(),
        )
    }

    fn render(&self, number: u64, root: &str) -> Value {
        let Some(issue) = self.issues.iter().find(|issue| issue.number == number) else {
            return Value::Null;
        };
        let time = |seconds: i64| {
            jiff::Timestamp::from_second(BEGIN + seconds)
                .map(|time| time.to_string())
                .ok()
        };
        let parent = issue
            .parent
            .map(|parent| format!("{root}/repos/acme/app/issues/{parent}"));
        let mut value = json!({
            "id": ID + number, "number": number, "title": issue.title, "body": issue.body,
            "html_url": format!("https://github.com/acme/app/issues/{number}"),
            "state": if issue.closed { "closed" } else { "open" }, "state_reason": issue.reason,
            "labels": issue.labels.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
            "assignees": issue.assignee.iter().map(|login| json!({"login": login})).collect::<Vec<_>>(),
            "milestone": issue.milestone.as_ref().map(|title| self.milestone(title)),
            "comments": issue.comments.len(), "created_at": time(0), "updated_at": time(issue.updated),
            "closed_at": issue.closed.then(|| time(issue.updated)), "parent_issue_url": parent,
            "issue_dependencies_summary": {"blocked_by": issue.blocked_by.len(), "total_blocked_by": issue.blocked_by.len()},
        });
        if issue.pull_request {
            value["pull_request"] = json!({"url": "x"});
        }
        value
    }
}

fn seconds(seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(BEGIN + seconds)
        .map(|time| time.to_string())
        .ok()
}

fn render_comment(comment: &HubComment, number: u64, root: &str) -> Value {
    json!({
        "id": comment.id, "body": comment.body, "user": {"login": comment.by}, "created_at": seconds(comment.made),
        "updated_at": seconds(comment.updated), "issue_url": format!("{root}/repos/acme/app/issues/{number}"),
    })
}

fn patch(issue: &mut HubIssue, body: &Value, milestones: &[String]) {
    for (name, value) in body.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default().to_owned();
        match name.as_str() {
            "title" => issue.title = text,
            "body" => issue.body = text,
            "state" => issue.closed = text == "closed",
            "state_reason" => issue.reason = value.as_str().map(str::to_owned),
            "milestone" => {
                let at = value
                    .as_u64()
                    .and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
                issue.milestone = at.and_then(|at| milestones.get(at).cloned());
            }
            "assignees" => issue.assignee = value[0].as_str().map(str::to_owned),
            _ => {}
        }
    }
}
