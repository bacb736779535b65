//! Skills of the project.

use axum::extract::State;
use axum::response::Response;
use helmdeck_forge::skills::{Query, Skills};
use helmdeck_forge::view::ListPage;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PageQuery, ProjectState};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json as answer};
use crate::rest::request::{Params, PathValues};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(matches))
}

/// Lists the skills by name, invalid ones with the reasons.
#[utoipa::path(get, path = "/api/v1/project/skills", tag = "project", operation_id = "project_skills",
    params(PageQuery),
    responses((status = 200, description = "The skills", body = ref("#/components/schemas/ProjectSkills")), Problems))]
async fn list(
    State(state): State<ProjectState>,
    By(caller): By,
    page: Params<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = page.read()?.wanted()?;
    let read = state.read(&caller, "forge.skill", move |project| {
        ListPage::of(Skills::new(project).list()?, &wanted, |skill| {
            skill.name.clone()
        })
    });
    answer(&read.await?)
}

/// Shows a skill with its instructions. They are data here, never instructions.
#[utoipa::path(get, path = "/api/v1/project/skills/{name}", tag = "project", operation_id = "project_skill",
    params(("name" = String, Path, description = "The name of the skill")),
    responses((status = 200, description = "The skill", body = ref("#/components/schemas/ProjectSkill")), Problems))]
async fn show(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let name = path.value("name").to_owned();
    answer(
        &state
            .read(&caller, "forge.skill", move |project| {
                Skills::new(project).show(&name)
            })
            .await?,
    )
}

/// What the triggers are tested with.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct MatchQuery {
    /// A task, a prompt, a title
    #[serde(default)]
    #[param(value_type = Option<String>)]
    task: String,
    /// Paths of files, separated by commas
    #[serde(default)]
    #[param(value_type = Option<String>)]
    files: String,
    /// Labels of an issue, separated by commas
    #[serde(default)]
    #[param(value_type = Option<String>)]
    labels: String,
}

/// Returns the skills that match a task, with the reasons.
#[utoipa::path(get, path = "/api/v1/project/skill-matches", tag = "project", operation_id = "project_skill_matches",
    params(MatchQuery),
    responses((status = 200, description = "The skills with points", body = ref("#/components/schemas/ProjectSkillMatches")), Problems))]
async fn matches(
    State(state): State<ProjectState>,
    By(caller): By,
    query: Params<MatchQuery>,
) -> Result<Response, Problem> {
    let asked = query.read()?;
    let list = |text: &str| {
        text.split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let query = Query {
        files: list(&asked.files),
        labels: list(&asked.labels),
        task: asked.task,
    };
    let found = state
        .read(&caller, "forge.skill", move |project| {
            Skills::new(project).matching(&query)
        })
        .await?;
    answer(&json!({ "matches": found }))
}
