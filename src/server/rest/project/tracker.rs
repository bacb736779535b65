//! The sync with an issue tracker, from the files of this clone. No route asks the tracker.

use axum::extract::State;
use axum::response::Response;
use helmdeck_forge_documents::tracking::Outbox;
use helmdeck_trackers::sync;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ProjectState;
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json as answer};

const PACK: &str = "forge.issue_list";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(status))
        .routes(routes!(outbox))
}

/// Shows the sync with the issue tracker: when it was read last, what waits, failed or conflicts.
#[utoipa::path(get, path = "/api/v1/project/tracker", tag = "project", operation_id = "project_tracker",
    responses((status = 200, description = "The state", body = ref("#/components/schemas/ProjectTracker")), Problems))]
async fn status(State(state): State<ProjectState>, By(caller): By) -> Result<Response, Problem> {
    let read = state.read(&caller, PACK, |project| {
        let config = project.config();
        Ok(json!({ "mode": config.linear.mode, "kind": config.tracker.kind, "sync": sync::status(project)? }))
    });
    answer(&read.await?)
}

/// Lists the changes that wait for the issue tracker, oldest first.
#[utoipa::path(get, path = "/api/v1/project/tracker/outbox", tag = "project", operation_id = "project_outbox",
    responses((status = 200, description = "The changes", body = ref("#/components/schemas/ProjectOutbox")), Problems))]
async fn outbox(State(state): State<ProjectState>, By(caller): By) -> Result<Response, Problem> {
    let read = state.read(&caller, PACK, |project| {
        let outbox = Outbox::read(project.files())?;
        Ok(json!({ "waiting": outbox.waiting, "damaged": outbox.damaged.len() }))
    });
    answer(&read.await?)
}
