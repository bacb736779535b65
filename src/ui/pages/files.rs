//! Artifacts and sandboxes: what calls left behind.

use askama::Template;
use axum::Router;
use axum::response::Response;
use http::Method;

use super::list::{ListOf, Listed};
use super::{done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::{path as encoded, segment};
use crate::shown::{self, Time};

const LIST: ListOf = ListOf {
    place: Place::Files,
    title: "Files",
    route: "/api/v1/artifacts",
    filters: &["pack", "all"],
    ..ListOf::PLAIN
};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/files", page_at(|visit| Box::pin(list(visit))))
        .route(
            "/ui/artifacts/{*key}",
            page_at(|visit| Box::pin(download(visit)))
                .merge(form_at(|post| Box::pin(delete(post)))),
        )
        .route(
            "/ui/sandboxes/{id}/end",
            form_at(|post| Box::pin(end(post))),
        )
}

answer! {
    /// A file that a call wrote.
    #[derive(Debug)]
    pub(super) struct Artifact {
        pub(super) key: String,
        pub(super) name: String,
        media_type: String,
        pub(super) size: u64,
        expires_at: Time,
        /// Owner, in lists only.
        tenant: String = default,
        user: String = default,
    }
}

impl Artifact {
    /// Path of the download.
    pub(super) fn path(&self) -> String {
        format!("/ui/artifacts/{}", encoded(&self.key))
    }
}

answer! {
    #[derive(Debug)]
    struct ArtifactList {
        artifacts: Vec<Artifact>,
        next: Option<String>,
    }

    /// A session that packs run commands in.
    #[derive(Debug)]
    struct Sandbox {
        id: String,
        tenant: String,
        user: String,
        pack: String,
        created_at: Time,
        expires_at: Time,
    }

    #[derive(Debug, Default)]
    struct SandboxList {
        sessions: Vec<Sandbox>,
    }
}

#[derive(Template)]
#[template(path = "files.html")]
struct FilesPage {
    frame: Frame,
    list: Listed<ArtifactList>,
    sandboxes: Vec<Sandbox>,
}

crate::frame::framed!(FilesPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    // A server without sandboxes refuses.
    let sandboxes: SandboxList = ui
        .rest
        .get(&caller, "/api/v1/sessions")
        .await
        .unwrap_or_default();
    let sandboxes = sandboxes.sessions;
    // Calls and jobs leave files, and have sandboxes.
    let topics: Vec<&str> = super::topics(&ui, &caller)
        .into_iter()
        .filter(|topic| *topic != "stats")
        .collect();
    let make = |mut frame: Frame, list: Listed<ArtifactList>| {
        if !topics.is_empty() && !list.is_older() {
            frame = frame.live(&format!("view=page&topics={}", topics.join(",")));
        }
        FilesPage {
            frame,
            list,
            sandboxes,
        }
    };
    LIST.show(&ui, &caller, &query, make).await
}

/// Sends an artifact as the REST route does: as an attachment, never rendered.
async fn download(
    Visit {
        ui, caller, path, ..
    }: Visit,
) -> Response {
    let route = format!("/api/v1/artifacts/{}", encoded(path_value(&path, "key")));
    match ui.rest.open(&caller, Method::GET, &route, None).await {
        Ok(response) if response.status().is_success() => response,
        _ => {
            let detail = "this artifact has expired, was deleted, or is of somebody else";
            let failure = crate::rest::Failure::new(http::StatusCode::NOT_FOUND, detail);
            failed(&ui, &caller, Place::Files, &failure)
        }
    }
}

async fn delete(Post { ui, path, sent }: Post) -> Response {
    let route = format!("/api/v1/artifacts/{}", encoded(path_value(&path, "key")));
    match ui
        .rest
        .send(&sent.caller, Method::DELETE, &route, None)
        .await
    {
        Ok(_) => done(&ui, &sent.caller, "/ui/files", "The artifact was deleted."),
        Err(failure) => failed(&ui, &sent.caller, Place::Files, &failure),
    }
}

async fn end(Post { ui, path, sent }: Post) -> Response {
    let route = format!("/api/v1/sessions/{}", segment(path_value(&path, "id")));
    match ui
        .rest
        .send(&sent.caller, Method::DELETE, &route, None)
        .await
    {
        Ok(_) => done(&ui, &sent.caller, "/ui/files", "The sandbox has ended."),
        Err(failure) => failed(&ui, &sent.caller, Place::Files, &failure),
    }
}
