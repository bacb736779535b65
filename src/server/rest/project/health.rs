//! Health of the project, its files, the colours of its folders.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use helmdeck_core::Code;
use helmdeck_forge::health::{colours_css, colours_json, colours_ts};
use helmdeck_forge::view::{self, ListPage};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PageQuery, ProjectState, check};
use crate::access::By;
use crate::app::App;
use crate::headers::NOSNIFF;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json};
use crate::rest::request::Params;

pub(super) const PACK: &str = "forge.health";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(show))
        .routes(routes!(history))
        .routes(routes!(tree))
        .routes(routes!(colours))
}

/// Measures the health of the project: five components, each with a colour, its reasons and a next
/// command.
///
/// Callers who ask within two seconds share one measurement (`measured_at`).
#[utoipa::path(get, path = "/api/v1/project/health", tag = "project", operation_id = "project_health",
    responses((status = 200, description = "The health", body = ref("#/components/schemas/ProjectHealth")), Problems))]
async fn show(State(state): State<ProjectState>, By(caller): By) -> Result<Response, Problem> {
    let (measured, watch) = (state.measured.clone(), state.watch.clone());
    json(
        &*state
            .read(&caller, PACK, move |project| {
                Ok(measured.of(project, &watch))
            })
            .await?,
    )
}

/// Lists the recorded colours of the project, newest first.
#[utoipa::path(get, path = "/api/v1/project/health/history", tag = "project", operation_id = "project_health_history",
    params(PageQuery),
    responses((status = 200, description = "The colours", body = ref("#/components/schemas/ProjectColours")), Problems))]
async fn history(
    State(state): State<ProjectState>,
    By(caller): By,
    page: Params<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = page.read()?.wanted()?;
    let read = state.read(&caller, PACK, move |project| {
        let mut samples = helmdeck_forge::health::history(project)?;
        samples.reverse();
        ListPage::of(samples, &wanted, |sample| sample.at.to_string())
    });
    json(&read.await?)
}

/// Lists the files of the project's memory, each with its size, version tag, newest entry and
/// damage.
#[utoipa::path(get, path = "/api/v1/project/tree", tag = "project", operation_id = "project_tree",
    params(PageQuery),
    responses((status = 200, description = "The files", body = ref("#/components/schemas/ProjectTree")), Problems))]
async fn tree(
    State(state): State<ProjectState>,
    By(caller): By,
    page: Params<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = page.read()?.wanted()?;
    json(
        &state
            .read(&caller, PACK, move |project| view::tree(project, &wanted))
            .await?,
    )
}

/// How the colours are written.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ColourQuery {
    /// `json` (default), `css` or `ts`
    format: Option<String>,
}

/// Returns the colours of the folders, as JSON, CSS or TypeScript. A colour names a folder; it is
/// not its health.
#[utoipa::path(get, path = "/api/v1/project/colours", tag = "project", operation_id = "project_colours",
    params(ColourQuery),
    responses((status = 200, description = "The colours", content_type = "*/*", body = String), Problems))]
async fn colours(By(caller): By, query: Params<ColourQuery>) -> Result<Response, Problem> {
    check(&caller, PACK)?;
    let (kind, text) = match query.read()?.format.as_deref().unwrap_or("json") {
        "json" => ("application/json", colours_json()),
        "css" => ("text/css; charset=utf-8", colours_css()),
        "ts" => ("text/plain; charset=utf-8", colours_ts()),
        _ => {
            return Err(Problem::new(
                Code::InvalidInput,
                "format is json, css or ts",
            ));
        }
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("private, max-age=3600"),
        ),
        NOSNIFF,
    ];
    Ok((headers, text).into_response())
}
