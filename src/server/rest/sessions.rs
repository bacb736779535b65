//! Routes of the sessions that packs run commands in: list and end.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::json;
use super::request::PathValues;
use super::state::EngineState;
use crate::access::{By, reach};
use crate::app::App;
use crate::problem::Problem;

/// Name of a session in refusals.
const SESSION: &str = "a session";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(end))
}

/// Lists the caller's sessions, oldest first. An administrator sees those of everybody.
///
/// Sessions of other processes on the same data folder are included.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", operation_id = "list_sessions",
    responses(
        (status = 200, description = "The sessions", body = ref("#/components/schemas/Sessions")),
        (status = 503, description = "This server has no sessions"),
    ))]
async fn list(State(state): State<EngineState>, By(caller): By) -> Result<Response, Problem> {
    let sessions = state
        .limits
        .in_time(state.engine.sessions(reach(&caller, SESSION)?))
        .await??;
    json(&serde_json::json!({ "sessions": sessions }))
}

/// Ends a session with everything that runs in it, and removes its folder.
///
/// Only the owner and administrators can end it; for everyone else it is not found.
#[utoipa::path(delete, path = "/api/v1/sessions/{id}", tag = "sessions", operation_id = "end_session",
    params(("id" = String, Path, description = "The `session_id` of an outcome")),
    responses(
        (status = 204, description = "It has ended"),
        (status = 404, description = "Session not found"),
    ))]
async fn end(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let ending = state
        .engine
        .end_session(reach(&caller, SESSION)?, path.value("id"));
    state.limits.in_time(ending).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
