//! Commits and checkpoints of the project.

use axum::extract::State;
use axum::response::Response;
use helmdeck_forge::checkpoints::Checkpoints;
use helmdeck_forge::view::{self, ListPage};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PageQuery, ProjectState};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json};
use crate::rest::request::{Params, PathValues};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(commits))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(diff))
}

/// Lists the commits of the branch, newest first, with the issue and session that their messages
/// name.
#[utoipa::path(get, path = "/api/v1/project/commits", tag = "project", operation_id = "project_commits",
    params(PageQuery),
    responses((status = 200, description = "The commits", body = ref("#/components/schemas/ProjectCommits")), Problems))]
async fn commits(
    State(state): State<ProjectState>,
    By(caller): By,
    page: Params<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = page.read()?.wanted()?;
    json(
        &state
            .read(&caller, "forge.prime", move |project| {
                view::commits(project, &wanted)
            })
            .await?,
    )
}

/// Lists the checkpoints with their state, newest first.
#[utoipa::path(get, path = "/api/v1/project/checkpoints", tag = "project", operation_id = "project_checkpoints",
    params(PageQuery),
    responses((status = 200, description = "The checkpoints", body = ref("#/components/schemas/ProjectCheckpoints")), Problems))]
async fn list(
    State(state): State<ProjectState>,
    By(caller): By,
    page: Params<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = page.read()?.wanted()?;
    let read = state.read(&caller, "forge.checkpoint_list", move |project| {
        ListPage::of(Checkpoints::new(project).list()?, &wanted, |checkpoint| {
            checkpoint.name.clone()
        })
    });
    json(&read.await?)
}

/// Shows a checkpoint with its manifest.
#[utoipa::path(get, path = "/api/v1/project/checkpoints/{name}", tag = "project", operation_id = "project_checkpoint",
    params(("name" = String, Path, description = "`<KEY>-v<N>`")),
    responses((status = 200, description = "The checkpoint", body = ref("#/components/schemas/ProjectCheckpoint")), Problems))]
async fn show(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let name = path.value("name").to_owned();
    json(
        &state
            .read(&caller, "forge.checkpoint_list", move |project| {
                Checkpoints::new(project).show(&name)
            })
            .await?,
    )
}

/// What to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct DiffQuery {
    /// Only this file or folder, from the root of the repository
    path: Option<String>,
}

/// Compares a checkpoint with the work tree: which files differ, and their difference as text.
///
/// `.forge/` is left out. No program of the repository's settings runs.
#[utoipa::path(get, path = "/api/v1/project/checkpoints/{name}/diff", tag = "project", operation_id = "project_diff",
    params(("name" = String, Path, description = "`<KEY>-v<N>`"), DiffQuery),
    responses((status = 200, description = "The difference", body = ref("#/components/schemas/ProjectDiff")), Problems))]
async fn diff(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
    query: Params<DiffQuery>,
) -> Result<Response, Problem> {
    let name = path.value("name").to_owned();
    let below = query.read()?.path.filter(|path| !path.is_empty());
    let read = state.read(&caller, "forge.checkpoint_list", move |project| {
        view::diff(project, &name, below.as_deref())
    });
    json(&read.await?)
}
