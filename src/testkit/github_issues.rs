//! Stand-in for the issues of a GitHub repository on loopback, in memory.

use std::collections::BTreeSet;
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
    /// The comments.
    pub comments: Vec<String>,
    updated: i64,
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
        let store = Arc::new(Mutex::new(HubStore { page: 100, ..HubStore::default() }));
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
        self.with(|store| store.issues.iter().find(|issue| issue.number == number).cloned()).expect("an issue")
    }

    fn serve(&self, stream: &TcpStream) {
        let Some(request) = read(stream) else { return };
        let mut store = self.store.lock();
        if !request.authorization.starts_with("Bearer token-") {
            return answer(stream, 401, &[], r#"{"message": "Bad credentials"}"#);
        }
        let (status, headers, body) = store.handle(&request, &self.url());
        if request.method == "POST" && std::mem::take(&mut store.cut_next_post) {
            return;
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        answer(stream, status, &headers, &body);
    }
}

impl HubStore {
    /// Adds an issue as a person does. Returns its number.
    pub fn add(&mut self, title: &str) -> u64 {
        self.now += 1;
        let number = self.issues.len() as u64 + 1;
        let issue = HubIssue { number, title: title.to_owned(), updated: self.now, ..HubIssue::default() };
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
        let issue = self.issues.iter_mut().find(|issue| issue.number == number).expect("an issue");
        change(issue);
        issue.updated = self.now;
    }

    fn handle(&mut self, request: &Request, root: &str) -> (u16, Vec<(String, String)>, Value) {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let decoded = path.replace("%20", " ");
        let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let number = |text: &str| text.parse::<u64>().unwrap_or_default();
        let ok = |value: Value| (200, Vec::new(), value);
        let labels = ["bug", "feature", "in progress", "ui"];
        let absent = (404, Vec::new(), json!({"message": "Not Found"}));
        let rest = match parts.as_slice() {
            ["user"] => return ok(json!({"login": "ada"})),
            ["repos", "acme", "app", rest @ ..] => rest,
            _ => return absent,
        };
        let known = |store: &Self, wanted: u64| store.issues.iter().any(|issue| issue.number == wanted);
        match (request.method.as_str(), rest) {
            ("GET", ["labels"]) => ok(labels.map(|name| json!({"name": name})).into_iter().collect()),
            ("GET", ["assignees"]) => ok(json!([{"login": "ada"}, {"login": "grace"}])),
            ("GET", ["issues"]) => self.list(query, root),
            ("POST", ["issues"]) => {
                let made = self.add(body["title"].as_str().unwrap_or_default());
                self.edit(made, |issue| patch(issue, &body));
                (201, Vec::new(), self.render(made, root))
            }
            (_, ["issues", one, ..]) if !known(self, number(one)) => absent,
            ("GET", ["issues", one]) => ok(self.render(number(one), root)),
            ("PATCH", ["issues", one]) => {
                self.edit(number(one), |issue| patch(issue, &body));
                ok(self.render(number(one), root))
            }
            ("POST", ["issues", one, "labels"]) => {
                let names: Vec<String> = serde_json::from_value(body["labels"].clone()).unwrap_or_default();
                self.edit(number(one), |issue| issue.labels.extend(names));
                ok(json!([]))
            }
            ("DELETE", ["issues", one, "labels", name]) => {
                self.edit(number(one), |issue| issue.labels.retain(|label| label != name));
                ok(json!([]))
            }
            ("GET", ["issues", one, "comments"]) => {
                let found = self.issues.iter().find(|issue| issue.number == number(one));
                ok(found.into_iter().flat_map(|issue| &issue.comments).map(|body| json!({"body": body})).collect())
            }
            ("POST", ["issues", one, "comments"]) => {
                self.edit(number(one), |issue| {
                    issue.comments.push(body["body"].as_str().unwrap_or_default().to_owned())
                });
                (201, Vec::new(), json!({}))
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
                let blockers: Vec<u64> = found.into_iter().flat_map(|issue| issue.blocked_by.iter().copied()).collect();
                ok(blockers.into_iter().map(|blocker| self.render(blocker, root)).collect())
            }
            ("POST", ["issues", one, "dependencies", "blocked_by"]) => {
                let blocker = body["issue_id"].as_u64().unwrap_or_default() - ID;
                self.edit(number(one), |issue| issue.blocked_by.extend([blocker]));
                (201, Vec::new(), json!({}))
            }
            ("DELETE", ["issues", one, "dependencies", "blocked_by", id]) => {
                let blocker = number(id) - ID;
                self.edit(number(one), |issue| issue.blocked_by.retain(|one| *one != blocker));
                ok(json!({}))
            }
            (method, _) => {
                self.unknown.push(format!("{method} {path}"));
                absent
            }
        }
    }

    fn list(&self, query: &str, root: &str) -> (u16, Vec<(String, String)>, Value) {
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
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
        let page: usize = value("page").and_then(|page| page.parse().ok()).unwrap_or(1);
        let from = (page - 1) * self.page;
        let items: Value =
            found.iter().skip(from).take(self.page).map(|issue| self.render(issue.number, root)).collect();
        let mut headers = Vec::new();
        if from + self.page < found.len() {
            headers
                .push(("link".to_owned(), format!("<{root}/repos/acme/app/issues?page={}>; rel=\"next\"", page + 1)));
        }
        (200, headers, items)
    }

    fn render(&self, number: u64, root: &str) -> Value {
        let Some(issue) = self.issues.iter().find(|issue| issue.number == number) else { return Value::Null };
        let time = |seconds: i64| jiff::Timestamp::from_second(BEGIN + seconds).map(|time| time.to_string()).ok();
        let parent = issue.parent.map(|parent| format!("{root}/repos/acme/app/issues/{parent}"));
        let mut value = json!({
            "id": ID + number, "number": number, "title": issue.title, "body": issue.body,
            "html_url": format!("https://github.com/acme/app/issues/{number}"),
            "state": if issue.closed { "closed" } else { "open" }, "state_reason": issue.reason,
            "labels": issue.labels.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
            "assignees": issue.assignee.iter().map(|login| json!({"login": login})).collect::<Vec<_>>(),
            "milestone": null, "created_at": time(0), "updated_at": time(issue.updated),
            "closed_at": issue.closed.then(|| time(issue.updated)), "parent_issue_url": parent,
            "issue_dependencies_summary": {"blocked_by": issue.blocked_by.len(), "total_blocked_by": issue.blocked_by.len()},
        });
        if issue.pull_request {
            value["pull_request"] = json!({"url": "x"});
        }
        value
    }
}

fn patch(issue: &mut HubIssue, body: &Value) {
    for (name, value) in body.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default().to_owned();
        match name.as_str() {
            "title" => issue.title = text,
            "body" => issue.body = text,
            "state" => issue.closed = text == "closed",
            "state_reason" => issue.reason = value.as_str().map(str::to_owned),
            "assignees" => issue.assignee = value[0].as_str().map(str::to_owned),
            _ => {}
        }
    }
}
