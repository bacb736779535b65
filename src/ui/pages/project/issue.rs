//! One issue: its criteria, comments and history, and the forms that change it.

use askama::Template;
use axum::Router;
use axum::response::Response;
use helmdeck_core::Caller;
use helmdeck_forge::issues::{CANCELLED, DONE, IssueEdit, IssueView, priority};
use helmdeck_forge::view::SeenCommit;
use http::StatusCode;
use serde_json::{Value, json};

use super::{API, Tab, Top, answered, change, changed, frame, text};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{PathParams, Post, Sent, Visit, form_at, page_at};
use crate::rest::{Failure, segment};
use crate::schema_form::{self, Field};
use crate::shown::TimeHtml as _;

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

/// Members of a change that have a form of their own, or none.
const ELSEWHERE: [&str; 10] = [
    "key",
    "checked",
    "unchecked",
    "evidence",
    "comment",
    "anyway",
    "what",
    "why",
    "learned",
    "if_match",
];

answer! {
    /// The contract of a pack.
    struct Contract {
        input: Value,
    }
}

/// Returns the first characters of a commit's id.
pub(super) fn short(commit: &SeenCommit) -> &str {
    commit.commit.get(..12).unwrap_or(&commit.commit)
}

#[derive(Template)]
#[template(path = "project/issue.html")]
struct IssuePage {
    frame: Frame,
    top: Top,
    shown: IssueView,
    /// What can be changed; empty if the caller may not.
    fields: Vec<Field>,
}

crate::frame::framed!(IssuePage);

impl IssuePage {
    fn action(&self, action: &str) -> String {
        format!(
            "/ui/project/issues/{}/{action}",
            segment(&self.shown.item.issue.linear_id)
        )
    }

    fn priority(&self) -> Option<&'static str> {
        priority(self.shown.item.issue.priority)
    }

    fn short<'a>(&self, commit: &'a SeenCommit) -> &'a str {
        short(commit)
    }

    /// Returns the address at the tracker, if it is one that a browser may follow.
    fn link(&self) -> Option<&str> {
        let url = self.shown.item.issue.url.as_deref();
        url.filter(|url| url.starts_with("https://"))
    }
}

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
        let key = segment(super::super::path_value(&path, "issue"));
        let shown: IssueView = ui
            .rest
            .output(&caller, &format!("{API}/issues/{key}?changes=50"))
            .await?;
        let issue = &shown.item.issue;
        let current = serde_json::to_value(IssueEdit::of(issue)).unwrap_or_default();
        let mut fields = match contract(&ui, &caller).await {
            Ok(schema) => schema_form::fields(&schema, &current),
            Err(_) => Vec::new(),
        };
        fields.retain(|field| !ELSEWHERE.contains(&field.name.as_str()));
        Ok(page(&IssuePage {
            frame: frame(
                &format!("{} {}", issue.linear_id, issue.title),
                &ui,
                &caller,
            ),
            top: Top::new(Tab::Issues, &state, &ui, &caller),
            fields,
            shown,
        }))
    };
    answered(&ui, &caller, Tab::Issues, answer.await)
}

/// Returns the schema of a change.
async fn contract(ui: &Ui, caller: &Caller) -> Result<Value, Failure> {
    let contract: Contract = ui.rest.get(caller, "/api/v1/packs/forge.issue_set").await?;
    Ok(contract.input)
}

/// Sends a change of an issue, and leads back to it.
async fn send(ui: &Ui, path: &PathParams, sent: &Sent, body: Value, said: &str) -> Response {
    let key = segment(super::super::path_value(path, "issue"));
    let answer = change(ui, sent, &format!("issues/{key}"), &body).await;
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
    let input = async {
        let schema = contract(&ui, &sent.caller).await?;
        let wrong = |error: String| Failure::new(StatusCode::BAD_REQUEST, error);
        schema_form::edit(&schema, &sent, &ELSEWHERE).map_err(wrong)
    };
    match input.await {
        Ok(mut body) => {
            body["if_match"] = sent.value("etag").into();
            send(&ui, &path, &sent, body, "The issue was changed.").await
        }
        Err(failure) => answered(&ui, &sent.caller, Tab::Issues, Err(failure)),
    }
}

async fn check(Post { ui, path, sent }: Post) -> Response {
    let mark = if sent.value("done") == "true" {
        "checked"
    } else {
        "unchecked"
    };
    let body = json!({ "if_match": sent.value("etag"), mark: [sent.value("criterion")] });
    send(&ui, &path, &sent, body, "The criterion was marked.").await
}

async fn comment(Post { ui, path, sent }: Post) -> Response {
    let body = json!({ "comment": text(&sent, "text") });
    send(&ui, &path, &sent, body, "The comment was added.").await
}

async fn close(Post { ui, path, sent }: Post) -> Response {
    let state = if sent.value("cancelled") == "true" {
        CANCELLED
    } else {
        DONE
    };
    let mut body = json!({ "if_match": sent.value("etag"), "state": state });
    for name in ["anyway", "why"] {
        if sent.get(name).is_some() {
            body[name] = text(&sent, name).into();
        }
    }
    send(&ui, &path, &sent, body, "The issue was closed.").await
}
