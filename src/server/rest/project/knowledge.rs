//! Knowledge of the project, now or at an earlier commit.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::Code;
use helmdeck_forge::knowledge::{Kind, Search};
use helmdeck_forge::view;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ProjectState, wanted};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json};
use crate::rest::request::Params;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list))
}

/// Which knowledge.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct KnowledgeQuery {
    /// Words to search for; without any, the newest entries come first
    q: Option<String>,
    /// Only entries of this kind: `successful`, `failed`, `decision` or `invariant`
    kind: Option<String>,
    /// Superseded entries too
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    superseded: bool,
    /// A commit, branch or tag: the knowledge as it was there
    as_of: Option<String>,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// Lists what was learned, with its age; `as_of` shows an earlier version.
#[utoipa::path(get, path = "/api/v1/project/knowledge", tag = "project", operation_id = "project_knowledge",
    params(KnowledgeQuery),
    responses((status = 200, description = "The knowledge", body = ref("#/components/schemas/ProjectKnowledge")), Problems))]
async fn list(
    State(state): State<ProjectState>,
    By(caller): By,
    query: Params<KnowledgeQuery>,
) -> Result<Response, Problem> {
    let query = query.read()?;
    let kinds = match query.kind.filter(|kind| !kind.is_empty()) {
        None => Vec::new(),
        Some(kind) => vec![
            serde_json::from_value::<Kind>(Value::String(kind)).map_err(|_| {
                Problem::new(
                    Code::InvalidInput,
                    "kind is successful, failed, decision or invariant",
                )
            })?,
        ],
    };
    let search = Search {
        query: query.q.unwrap_or_default(),
        kinds,
        superseded: query.superseded,
        ..Search::default()
    };
    let as_of = query.as_of.filter(|name| !name.is_empty());
    let wanted = wanted(query.limit, query.after)?;
    let read = state.read(&caller, "forge.knowledge_search", move |project| {
        view::knowledge(project, &search, as_of.as_deref(), &wanted)
    });
    json(&read.await?)
}
