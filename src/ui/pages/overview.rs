//! The overview: whether the server is well, what runs, what was called last.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::answered;
use super::calls::{self, Habits};
use super::jobs::{Job, JobList};
use crate::Ui;
use crate::frame::{Frame, Place, page};
use crate::request::By;
use crate::rest::Failure;
use crate::shown;

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui", get(show))
}

/// Number of the newest calls on the page.
const CALLS: usize = 10;

/// The server's readiness, check by check.
#[derive(Debug, Deserialize)]
struct Readiness {
    status: String,
    checks: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct PackList {
    packs: Vec<PackName>,
    refused: Vec<Refused>,
}

#[derive(Debug, Deserialize)]
struct PackName {
    cached: bool,
}

/// A manifest that could not be read.
#[derive(Debug, Deserialize)]
struct Refused {
    file: String,
    line: Option<usize>,
    message: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    readiness: Readiness,
    packs: usize,
    cached_packs: usize,
    refused: Vec<Refused>,
    running: Vec<Job>,
    habits: Option<Habits>,
}

async fn show(State(ui): State<Ui>, By(caller): By) -> Response {
    let answer = async {
        let packs: PackList = ui.rest.get(&caller, "/api/v1/packs").await?;
        // A server that is not ready answers 503 with the same checks.
        let ready = ui.rest.open(&caller, Method::GET, "/readyz", None).await?;
        let readiness = readiness(ready).await?;
        let mut running = Vec::new();
        for state in ["running", "queued"] {
            // Without a data folder there are no jobs.
            if let Ok(list) = ui.rest.get::<JobList>(&caller, &format!("/api/v1/jobs?limit=10&state={state}")).await {
                running.extend(list.jobs);
            }
        }
        let mut habits = if ui.memory { calls::habits(&ui, &caller, "").await.ok() } else { None };
        if let Some(habits) = &mut habits {
            habits.recent.truncate(CALLS);
        }
        Ok(page(&OverviewPage {
            frame: Frame::new("Overview", Place::Overview, &caller, &ui),
            readiness,
            packs: packs.packs.len(),
            cached_packs: packs.packs.iter().filter(|pack| pack.cached).count(),
            refused: packs.refused,
            running,
            habits,
        }))
    };
    answered(&ui, &caller, Place::Overview, answer.await)
}

async fn readiness(response: Response) -> Result<Readiness, Failure> {
    use http_body_util::BodyExt;
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let odd = |_| Failure::new(http::StatusCode::BAD_GATEWAY, "the server does not say whether it is ready");
    Readiness::deserialize(value).map_err(odd)
}
