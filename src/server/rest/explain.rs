//! Route that explains the cache for a call, without running anything.

use axum::extract::{Request, State};
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::call::{CallRequest, without_suggestion};
use super::reply::{Problems, json};
use super::request::PathValues;
use super::state::EngineState;
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(explain))
}

/// Explains the cache for a call of the latest version: its key, its tags, whether there is an
/// answer. Runs nothing.
///
/// The request is that of the call itself. If there is no answer for exactly this call, `nearest`
/// says how the nearest one differs. A pack or a call that is not cached is a `conflict`, with the
/// reason.
#[utoipa::path(post, path = "/api/v1/packs/{name}/explain", tag = "packs", operation_id = "explain_call",
    params(
        ("name" = String, Path, description = "The pack's name, for example `github.list_issues`"),
        ("Helmdeck-Session" = Option<String>, Header, description = "The session of the call: 1 to 256 visible characters"),
    ),
    request_body(content = ref("#/components/schemas/Input"), content_type = "application/json", description = "The input"),
    responses(
        (status = 200, description = "The explanation", body = ref("#/components/schemas/Explanation")),
        (status = 409, description = "This call is not cached"),
        Problems,
    ))]
async fn explain(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let asked = CallRequest::read(&state, &caller, &path, request).await?;
    let refused = |error| {
        without_suggestion(
            &state.engine,
            &caller.permissions,
            path.value("name"),
            error,
        )
    };
    json(
        &state
            .limits
            .in_time(state.engine.explain(asked.call))
            .await?
            .map_err(refused)?,
    )
}
