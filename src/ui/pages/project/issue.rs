//! One issue: its criteria, comments and history, and the forms that change it.

use askama::Template;
use axum::Router;
use axum::response::Response;
use serde_json::json;

use super::issues::priority;
use super::{API, Tab, Top, answered, change, changed, frame, list, text};
use crate::Ui;
use crate::frame::{Frame, page};
use serde_json::Value;

use crate::json::{self, Read, Unreadable, answer};
use crate::request::{PathParams, Post, Sent, Visit, form_at, page_at};
use crate::rest::segment;
use crate::shown::Time;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/issues/{issue}",
            page_at(|visit| Box::pin(show(visit))),
        )
        .route(
            "/ui/project/issues/{issue}/set",
            form_at(|post| Box::pin(set(post))),
        )
        .route(
            "/ui/project/issues/{issue}/check",
            form_at(|post| Box::pin(check(post))),
        )
        .route(
            "/ui/project/issues/{issue}/comment",
            form_at(|post| Box::pin(comment(post))),
        )
        .route(
            "/ui/project/issues/{issue}/done",
            form_at(|post| Box::pin(close(post))),
        )
}

answer! {
    #[derive(Debug)]
    struct Shown {
        etag: String,
        over: bool,
        ready: bool,
        waits_for: Vec<String> = default,
        also: Vec<String> = default,
        claimed: bool = default,
        issue: Issue,
        summary: Option<String>,
        changes: Vec<Commit>,
    }
}

answer! {
    /// An issue.
    #[derive(Debug)]
    struct Issue {
        linear_id: String,
        title: String,
        description: Option<String>,
        kind: Option<String> = "type",
        state: Option<String>,
        priority: Option<u8>,
        labels: Vec<String> = default,
        assignee: Option<String>,
        blocked_by: Vec<String> = default,
        features: Vec<String> = default,
        acceptance_criteria: Vec<Criterion> = default,
        comments: Vec<Comment> = default,
        aliases: Vec<String> = default,
        url: Option<String>,
        created_at: Option<Time>,
        updated_at: Option<Time>,
        git_refs: Option<GitRefs>,
    }
}

impl Issue {
    fn priority(&self) -> &'static str {
        priority(self.priority)
    }

    /// Returns the earlier keys, without the marks of local ones.
    fn earlier(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().map(|alias| {
            alias
                .match_indices('-')
                .nth(1)
                .map_or(&alias[..], |(end, _)| &alias[..end])
        })
    }

    /// Returns the address at the tracker, if it is one that a browser may follow.
    fn link(&self) -> Option<&str> {
        self.url
            .as_deref()
            .filter(|url| url.starts_with("https://"))
    }

    fn form(&self, action: &str) -> String {
        format!("/ui/project/issues/{}/{action}", segment(&self.linear_id))
    }

    fn labels(&self) -> String {
        self.labels.join(", ")
    }

    fn is_priority(&self, number: &u8) -> bool {
        self.priority.unwrap_or(0) == *number
    }
}

/// What must hold before an issue is done.
#[derive(Debug)]
enum Criterion {
    Text(String),
    Checked {
        text: String,
        done: bool,
        evidence: Option<String>,
    },
}

impl Read for Criterion {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        if let Some(text) = value.as_str() {
            return Ok(Self::Text(text.to_owned()));
        }
        let members = json::object(value)?;
        let (text, done) = (
            json::member(members, "text")?,
            json::member(members, "done")?,
        );
        Ok(Self::Checked {
            text,
            done,
            evidence: json::member(members, "evidence")?,
        })
    }
}

impl Criterion {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Checked { text, .. } => text,
        }
    }

    const fn is_done(&self) -> bool {
        matches!(self, Self::Checked { done: true, .. })
    }

    fn evidence(&self) -> &str {
        match self {
            Self::Checked {
                evidence: Some(evidence),
                ..
            } => evidence,
            _ => "",
        }
    }
}

answer! {
    #[derive(Debug)]
    struct Comment {
        by: Option<String>,
        at: Option<Time>,
        text: String,
    }

    #[derive(Debug)]
    struct GitRefs {
        branch: Option<String>,
        commits: Vec<String> = default,
    }

    /// A commit.
    #[derive(Debug)]
    pub(super) struct Commit {
        pub(super) commit: String,
        pub(super) at: Time,
        pub(super) author: String,
        pub(super) subject: String,
        pub(super) issue: Option<String>,
        pub(super) session: Option<String>,
    }
}

impl Commit {
    pub(super) fn short(&self) -> &str {
        self.commit.get(..12).unwrap_or(&self.commit)
    }
}

#[derive(Template)]
#[template(path = "project/issue.html")]
struct IssuePage {
    frame: Frame,
    top: Top,
    shown: Shown,
    priorities: [(u8, &'static str); 5],
}

crate::frame::framed!(IssuePage);

async fn show(
    Visit {
        ui,
        caller,
        path,
        query,
        ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let route = format!(
            "{API}/issues/{}",
            segment(super::super::path_value(&path, "issue"))
        );
        let shown: Shown = ui.rest.get(&caller, &route).await?;
        Ok(page(&IssuePage {
            frame: frame(
                &format!("{} {}", shown.issue.linear_id, shown.issue.title),
                &ui,
                &caller,
            ),
            top: Top::new(Tab::Issues, &state, &ui, &caller),
            shown,
            priorities: [
                (0, "none"),
                (1, "urgent"),
                (2, "high"),
                (3, "normal"),
                (4, "low"),
            ],
        }))
    };
    answered(&ui, &caller, Tab::Issues, answer.await)
}

/// Sends a change of an issue, and leads back to it.
async fn send(
    ui: &Ui,
    path: &PathParams,
    sent: &Sent,
    action: &str,
    body: serde_json::Value,
    said: &str,
) -> Response {
    let key = segment(super::super::path_value(path, "issue"));
    let answer = change(ui, sent, &format!("issues/{key}{action}"), &body).await;
    changed(
        ui,
        sent,
        Tab::Issues,
        &format!("/ui/project/issues/{key}"),
        said,
        answer,
    )
}

async fn set(Post { ui, path, sent }: Post) -> Response {
    let mut body = json!({
        "if_match": sent.value("etag"),
        "title": sent.value("title"),
        "description": text(&sent, "description"),
        "assignee": sent.value("assignee"),
        "labels": list(&sent, "labels"),
    });
    if let Some(state) = sent.get("state") {
        body["state"] = state.into();
    }
    if let Some(Ok(priority)) = sent.get("priority").map(str::parse::<u8>) {
        body["priority"] = priority.into();
    }
    send(&ui, &path, &sent, "", body, "The issue was changed.").await
}

async fn check(Post { ui, path, sent }: Post) -> Response {
    let mut mark =
        json!({ "criterion": sent.value("criterion"), "done": sent.value("done") == "true" });
    if let Some(evidence) = sent.get("evidence") {
        mark["evidence"] = evidence.into();
    }
    let body = json!({ "if_match": sent.value("etag"), "checked": [mark] });
    send(&ui, &path, &sent, "", body, "The criterion was marked.").await
}

async fn comment(Post { ui, path, sent }: Post) -> Response {
    let body = json!({ "text": text(&sent, "text") });
    send(
        &ui,
        &path,
        &sent,
        "/comments",
        body,
        "The comment was added.",
    )
    .await
}

async fn close(Post { ui, path, sent }: Post) -> Response {
    let mut body =
        json!({ "if_match": sent.value("etag"), "cancelled": sent.value("cancelled") == "true" });
    for (field, member) in [("anyway", "anyway"), ("why", "why")] {
        if sent.get(field).is_some() {
            body[member] = text(&sent, field).into();
        }
    }
    send(&ui, &path, &sent, "/done", body, "The issue was closed.").await
}
