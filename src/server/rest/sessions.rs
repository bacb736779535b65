//! The sessions that packs run commands in: the caller's own, and for an administrator anybody's.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Caller, Code, Identity, Permission};
use http::StatusCode;
use serde_json::json;

use super::in_time;
use super::path::PathValues;
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;

/// Whose sessions a caller may see and end: its own, or everybody's (`None`).
fn whose(caller: &Caller) -> Result<Option<&Identity>, Problem> {
    if caller.identity.is_anonymous() {
        // All callers without a token are one, and what one of them made is not for the others.
        return Err(Problem::new(Code::Unauthenticated, "a session is for whom a token proves to be its owner"));
    }
    Ok((!caller.permissions.allow(&Permission::Admin)).then_some(&*caller.identity))
}

/// Lists the caller's sessions, oldest first; an administrator sees those of everybody.
///
/// Those of other processes on the same data folder are among them.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", operation_id = "list_sessions", responses(
    (status = 200, description = "The sessions", body = ref("#/components/schemas/Sessions")),
    (status = 503, description = "This server has no sessions", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
))]
pub(crate) async fn list(State(app): State<Arc<App>>, By(caller): By) -> Result<Response, Problem> {
    let sessions = in_time(&app, app.engine.sessions(whose(&caller)?)).await??;
    super::json(&json!({ "sessions": sessions }))
}

/// Ends a session with everything that runs in it, and removes its folder.
///
/// A session of somebody else is not found, as one that never was; an administrator ends any.
#[utoipa::path(delete, path = "/api/v1/sessions/{id}", tag = "sessions", operation_id = "end_session",
    params(("id" = String, Path, description = "The `session_id` of an outcome")),
    responses(
        (status = 204, description = "It has ended"),
        (status = 404, description = "No such session", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn end(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
) -> Result<Response, Problem> {
    let id = path.iter().next().map(|(_, id)| id).unwrap_or_default();
    in_time(&app, app.engine.end_session(whose(&caller)?, id)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
