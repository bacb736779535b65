//! Artifacts of the project: a list, one, and its bytes as a download.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use helmdeck_core::Code;
use helmdeck_forge::artifacts::{Artifacts, Filter, Kind};
use helmdeck_forge::view::ListPage;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ProjectState, wanted};
use crate::access::By;
use crate::app::App;
use crate::headers::{NO_STORE, NOSNIFF};
use crate::problem::Problem;
use crate::rest::artifacts::disposition;
use crate::rest::reply::{Problems, json};
use crate::rest::request::{Params, PathValues};

const PACK: &str = "forge.prime";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(bytes))
}

/// Which artifacts.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ArtifactQuery {
    /// `code`, `docs` or `reports`
    kind: Option<String>,
    /// Only artifacts with this in their name
    name: Option<String>,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// Lists the artifacts of the project, newest first.
#[utoipa::path(get, path = "/api/v1/project/artifacts", tag = "project", operation_id = "project_artifacts",
    params(ArtifactQuery),
    responses((status = 200, description = "The artifacts", body = ref("#/components/schemas/ProjectArtifacts")), Problems))]
async fn list(
    State(state): State<ProjectState>,
    By(caller): By,
    query: Params<ArtifactQuery>,
) -> Result<Response, Problem> {
    let query = query.read()?;
    let kind = match query.kind.filter(|kind| !kind.is_empty()) {
        None => None,
        Some(kind) => Some(
            serde_json::from_value::<Kind>(Value::String(kind))
                .map_err(|_| Problem::new(Code::InvalidInput, "kind is code, docs or reports"))?,
        ),
    };
    let filter = Filter {
        kind,
        name: query.name.filter(|name| !name.is_empty()),
        ..Filter::default()
    };
    let wanted = wanted(query.limit, query.after)?;
    let read = state.read(&caller, PACK, move |project| {
        ListPage::of(
            Artifacts::new(project).list(&filter)?.artifacts,
            &wanted,
            |entry| entry.triv.to_string(),
        )
    });
    json(&read.await?)
}

/// Shows an artifact by its name: its newest entry, and whether its file is unchanged.
#[utoipa::path(get, path = "/api/v1/project/artifacts/{name}", tag = "project", operation_id = "project_artifact",
    params(("name" = String, Path, description = "A `triv:` name or a hash")),
    responses((status = 200, description = "The artifact", body = ref("#/components/schemas/ProjectArtifact")), Problems))]
async fn show(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let name = path.value("name").to_owned();
    json(
        &state
            .read(&caller, PACK, move |project| {
                Artifacts::new(project).get(&name)
            })
            .await?,
    )
}

/// Downloads an artifact. A browser saves it and never shows it as a page.
#[utoipa::path(get, path = "/api/v1/project/artifacts/{name}/bytes", tag = "project", operation_id = "project_artifact_bytes",
    params(("name" = String, Path, description = "A `triv:` name or a hash")),
    responses((status = 200, description = "The file", content_type = "*/*", body = String), Problems))]
async fn bytes(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let name = path.value("name").to_owned();
    let read = state.read(&caller, PACK, move |project| {
        let entry = Artifacts::new(project).get(&name)?.entry;
        Ok((Artifacts::new(project).bytes(&entry)?, entry))
    });
    let (bytes, entry) = read.await?;
    let name = HeaderValue::try_from(disposition(&entry.name))
        .map_err(|_| Problem::new(Code::Internal, "the artifact's name cannot be written"))?;
    let kind = HeaderValue::from_str(&entry.media_type);
    let headers = [
        (
            CONTENT_TYPE,
            kind.unwrap_or(HeaderValue::from_static("application/octet-stream")),
        ),
        (CONTENT_DISPOSITION, name),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; sandbox"),
        ),
        (CACHE_CONTROL, NO_STORE),
        NOSNIFF,
    ];
    Ok((headers, bytes).into_response())
}
