//! Issues of the project.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::Code;
use helmdeck_forge::issues::{Counts, Item, Scope, Shown};
use helmdeck_forge::layout::{COMMENTS, HISTORY, ISSUES};
use helmdeck_forge::view::{self, Part, SeenCommit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ProjectState, wanted};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json};
use crate::rest::request::{Params, PathValues};

/// Number of commits that changed an issue which are named.
const CHANGES: usize = 50;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(show))
}

/// Which issues.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct IssueQuery {
    /// `open` (default), `mine`, `ready`, `done` or `all`
    scope: Option<String>,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// Issues with their counts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct IssueList {
    /// Number of all issues by standing.
    counts: Counts,
    #[serde(flatten)]
    issues: Part<Item>,
}

/// Lists issues by priority, then by age. Those that are done come last.
#[utoipa::path(get, path = "/api/v1/project/issues", tag = "project", operation_id = "project_issues",
    params(IssueQuery),
    responses((status = 200, description = "The issues", body = ref("#/components/schemas/ProjectIssues")), Problems))]
async fn list(
    State(state): State<ProjectState>,
    By(caller): By,
    query: Params<IssueQuery>,
) -> Result<Response, Problem> {
    let query = query.read()?;
    let scope = match query.scope.filter(|scope| !scope.is_empty()) {
        None => Scope::Open,
        Some(scope) => serde_json::from_value(Value::String(scope)).map_err(|_| {
            Problem::new(
                Code::InvalidInput,
                "scope is open, mine, ready, done or all",
            )
        })?,
    };
    let wanted = wanted(query.limit, query.after)?;
    let read = state.read(&caller, "forge.issue_list", move |project| {
        let listed = project.issues().list(scope)?;
        let issues = Part::of(listed.issues, &wanted, |item| item.issue.linear_id.clone())?;
        Ok(IssueList {
            counts: listed.counts,
            issues,
        })
    });
    json(&read.await?)
}

/// An issue, and the commits that changed it.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct IssueView {
    #[serde(flatten)]
    shown: Shown,
    /// The newest commits that changed the issue's files, newest first.
    changes: Vec<SeenCommit>,
}

/// Shows an issue with its version tag, criteria, comments and history; one that is done too.
#[utoipa::path(get, path = "/api/v1/project/issues/{issue}", tag = "project", operation_id = "project_issue",
    params(("issue" = String, Path, description = "The key of the issue, or an earlier one")),
    responses((status = 200, description = "The issue", body = ref("#/components/schemas/ProjectIssue")), Problems))]
async fn show(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let key = path.value("issue").to_owned();
    let read = state.read(&caller, "forge.issue_show", move |project| {
        let shown = project.issues().show(&key)?;
        let key = shown.item.issue.stem();
        let files = [
            format!("{ISSUES}/{key}.json"),
            format!("{HISTORY}/{key}.md"),
            format!("{COMMENTS}/{key}"),
        ];
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        // Without git, no commit is known.
        let changes = view::revisions(project, &files, CHANGES).unwrap_or_default();
        Ok(IssueView { shown, changes })
    });
    json(&read.await?)
}
