//! Artifacts of the project. They are downloaded, never shown as a page.

use askama::Template;
use axum::Router;
use axum::response::Response;
use http::{Method, StatusCode};

use super::{API, Tab, Top, answered, live_frame, trouble};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Visit, page_at};
use crate::rest::{Failure, segment};
use crate::shown::{self, Time};

/// Number of artifacts on a page.
const LIMIT: usize = 50;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/artifacts",
            page_at(|visit| Box::pin(list(visit))),
        )
        .route(
            "/ui/project/artifacts/{name}/download",
            page_at(|visit| Box::pin(download(visit))),
        )
}

answer! {
    #[derive(Debug)]
    struct ArtifactList {
        items: Vec<Entry>,
        total: u64,
        next: Option<String>,
    }

    /// An artifact.
    #[derive(Debug)]
    struct Entry {
        triv: String,
        kind: String,
        name: String,
        media_type: String,
        bytes: u64,
        created_at: Time,
        session: Option<String>,
        linear: Option<String>,
    }
}

impl Entry {
    fn path(&self) -> String {
        format!("/ui/project/artifacts/{}/download", segment(&self.triv))
    }
}

#[derive(Template)]
#[template(path = "project/artifacts.html")]
struct ArtifactsPage {
    frame: Frame,
    top: Top,
    kind: String,
    name: String,
    kinds: [&'static str; 4],
    list: ArtifactList,
}

crate::frame::framed!(ArtifactsPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let filter = state.query(&["kind", "name", "after"]);
        let list = ui
            .rest
            .get(&caller, &format!("{API}/artifacts?limit={LIMIT}{filter}"))
            .await?;
        Ok(page(&ArtifactsPage {
            frame: live_frame("Artifacts", &ui, &caller),
            top: Top::new(Tab::Artifacts, &state, &ui, &caller),
            kind: state.get("kind").to_owned(),
            name: state.get("name").to_owned(),
            kinds: ["", "code", "docs", "reports"],
            list,
        }))
    };
    answered(&ui, &caller, Tab::Artifacts, answer.await)
}

/// Sends an artifact as the REST route does: as an attachment, never rendered.
async fn download(
    Visit {
        ui, caller, path, ..
    }: Visit,
) -> Response {
    let route = format!(
        "{API}/artifacts/{}/bytes",
        segment(super::super::path_value(&path, "name"))
    );
    match ui.rest.open(&caller, Method::GET, &route, None).await {
        Ok(response) if response.status().is_success() => response,
        Ok(response) => {
            let status = response.status();
            let detail = "this artifact is not in this clone, or its file is damaged: `helmdeck forge artifact list`";
            trouble(&ui, &caller, Tab::Artifacts, &Failure::new(status, detail))
        }
        Err(_) => trouble(
            &ui,
            &caller,
            Tab::Artifacts,
            &Failure::new(StatusCode::NOT_FOUND, "no such artifact"),
        ),
    }
}
