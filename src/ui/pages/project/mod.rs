//! The project: its health, issues, features, knowledge, history, skills, artifacts and tracker.
//!
//! Looking changes nothing in `.forge/`: the routes that these pages read write nothing.

mod artifacts;
mod checkpoints;
mod events;
mod features;
mod issue;
mod issues;
mod knowledge;
mod overview;
mod skills;
mod timeline;
mod tracker;
mod tree;

use askama::Template;
use axum::Router;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use helmdeck_core::Caller;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};
use serde_json::Value;

use super::done;
use crate::Ui;
use crate::frame::{Frame, Link, Place, failed, with_status};
use crate::json::{Read, answer};
use crate::request::{Sent, Visit, page_at};
use crate::rest::{Answer, Failure};

/// Path of the project routes.
const API: &str = "/api/v1/project";
/// The rules of these pages, besides those of all pages.
const STYLE: &str = include_str!("../../assets/project.css");

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/style.css",
            page_at(|visit| Box::pin(style(visit))),
        )
        .merge(overview::routes())
        .merge(issues::routes())
        .merge(issue::routes())
        .merge(features::routes())
        .merge(knowledge::routes())
        .merge(timeline::routes())
        .merge(checkpoints::routes())
        .merge(skills::routes())
        .merge(artifacts::routes())
        .merge(tree::routes())
        .merge(tracker::routes())
        .merge(events::routes())
}

/// A page of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tab {
    Overview,
    Issues,
    Features,
    Knowledge,
    Timeline,
    Checkpoints,
    Skills,
    Artifacts,
    Files,
    Tracker,
    Events,
}

impl Tab {
    /// Path and name of each page, in the order of the navigation.
    const ALL: [(Self, &'static str, &'static str); 11] = [
        (Self::Overview, "/ui/project", "Overview"),
        (Self::Issues, "/ui/project/issues", "Issues"),
        (Self::Features, "/ui/project/features", "Features"),
        (Self::Knowledge, "/ui/project/knowledge", "Knowledge"),
        (Self::Timeline, "/ui/project/timeline", "Timeline"),
        (Self::Checkpoints, "/ui/project/checkpoints", "Checkpoints"),
        (Self::Skills, "/ui/project/skills", "Skills"),
        (Self::Artifacts, "/ui/project/artifacts", "Artifacts"),
        (Self::Files, "/ui/project/files", "Files"),
        (Self::Tracker, "/ui/project/tracker", "Tracker"),
        (Self::Events, "/ui/project/events", "Events"),
    ];
}

/// What is above every page of the project.
#[derive(Debug)]
struct Top {
    tab: Tab,
    /// What was done, after a change.
    done: String,
}

impl Top {
    fn new(tab: Tab, state: &super::State, ui: &Ui, caller: &Caller) -> Self {
        Self {
            tab,
            done: state.done(ui, caller),
        }
    }

    fn links(&self) -> Vec<Link> {
        let link = |(tab, path, name)| Link {
            path,
            name,
            current: tab == self.tab,
        };
        Tab::ALL.into_iter().map(link).collect()
    }
}

answer! {
    /// A part of a list.
    #[derive(Debug)]
    struct Part<T> {
        items: Vec<T>,
        total: u64,
        next: Option<String>,
    }
}

fn frame(title: &str, ui: &Ui, caller: &Caller) -> Frame {
    Frame::new(title, Place::Project, caller, ui)
}

/// Returns the frame of a page that is read again when the project has changed.
fn live_frame(title: &str, ui: &Ui, caller: &Caller) -> Frame {
    frame(title, ui, caller).live("view=page&topics=project")
}

/// Page of a refusal: no project, a damaged file, no right, or another one.
#[derive(Template)]
#[template(path = "project/trouble.html")]
struct TroublePage<'a> {
    frame: Frame,
    top: Top,
    failure: &'a Failure,
    kind: Trouble,
}

crate::frame::framed!(TroublePage<'_>);

/// Kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    NoProject,
    NoRepository,
    Damaged,
    Forbidden,
    Other,
}

impl Trouble {
    fn of(failure: &Failure) -> Self {
        match failure.status {
            404 if failure.detail.starts_with("no project") => Self::NoProject,
            404 if failure.detail.contains("E_NOT_A_REPO") => Self::NoRepository,
            403 => Self::Forbidden,
            500 if failure.detail.contains("E_CORRUPT") => Self::Damaged,
            _ => Self::Other,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::NoProject => "No project",
            Self::NoRepository => "No repository",
            Self::Damaged => "A file is damaged",
            Self::Forbidden => "Not allowed",
            Self::Other => "Not possible",
        }
    }

    // Askama can compare with a function more easily than match.
    const fn is_no_project(self) -> bool {
        matches!(self, Self::NoProject)
    }

    const fn is_damaged(self) -> bool {
        matches!(self, Self::Damaged)
    }

    const fn is_forbidden(self) -> bool {
        matches!(self, Self::Forbidden)
    }
}

/// Answers with a page, or with what is in its way.
fn answered(ui: &Ui, caller: &Caller, tab: Tab, answer: Result<Response, Failure>) -> Response {
    answer.unwrap_or_else(|failure| trouble(ui, caller, tab, &failure))
}

fn trouble(ui: &Ui, caller: &Caller, tab: Tab, failure: &Failure) -> Response {
    let kind = Trouble::of(failure);
    // A server without a project is in order.
    let status = match kind {
        Trouble::NoProject if tab == Tab::Overview => StatusCode::OK,
        _ => StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let top = Top {
        tab,
        done: String::new(),
    };
    with_status(
        status,
        &TroublePage {
            frame: frame(kind.title(), ui, caller),
            top,
            failure,
            kind,
        },
    )
}

/// Returns what a route answers, if the caller may have it and there is something.
async fn optional<T: Read>(ui: &Ui, caller: &Caller, path: &str) -> Option<T> {
    ui.rest.get(caller, &format!("{API}/{path}")).await.ok()
}

/// Sends a change to a route.
async fn change(ui: &Ui, sent: &Sent, path: &str, body: &Value) -> Result<Answer, Failure> {
    ui.rest
        .send(
            &sent.caller,
            Method::POST,
            &format!("{API}/{path}"),
            Some(body),
        )
        .await
}

/// Answers to a form: leads back to a page, or shows why nothing was changed.
fn changed(
    ui: &Ui,
    sent: &Sent,
    tab: Tab,
    back: &str,
    sentence: &str,
    answer: Result<Answer, Failure>,
) -> Response {
    match answer {
        Ok(_) => done(ui, &sent.caller, back, sentence),
        Err(failure) => trouble(ui, &sent.caller, tab, &failure),
    }
}

/// Returns a text of a form with the line ends of files: browsers send two characters.
fn text(sent: &Sent, name: &str) -> String {
    sent.value(name).replace("\r\n", "\n")
}

/// Answers with the style sheet of these pages: the colours of the folders from their one table,
/// and the rules.
async fn style(Visit { ui, caller, .. }: Visit) -> Response {
    let colours: Result<Bytes, Failure> = ui
        .rest
        .send(
            &caller,
            Method::GET,
            &format!("{API}/colours?format=css"),
            None,
        )
        .await
        .map(|answer| answer.body);
    let colours = match colours {
        Ok(colours) => String::from_utf8_lossy(&colours).into_owned(),
        // A caller who may see nothing of the project gets the page that says so, with its form.
        Err(failure) if failure.status == 403 => String::new(),
        Err(failure) => return failed(&ui, &caller, Place::Project, &failure),
    };
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/css; charset=utf-8"),
        ),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("private, max-age=300"),
        ),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, format!("{colours}{STYLE}")).into_response()
}
