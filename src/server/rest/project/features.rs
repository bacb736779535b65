//! Features, and the current focus.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::Code;
use helmdeck_forge::features::{Counts, Features, Item, Standing};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::view::ListPage;
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
use crate::rest::request::Params;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(focus))
}

/// Which features.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct FeatureQuery {
    /// Only features of this standing, such as `passing_stale` or `regressed`
    standing: Option<String>,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// Features with their version tag.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct FeatureList {
    /// Version tag of the file, for a change; none if there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// Number of all features by standing.
    counts: Counts,
    #[serde(flatten)]
    features: ListPage<Item>,
}

/// Lists the features and their standing by evidence, in the order of the file.
#[utoipa::path(get, path = "/api/v1/project/features", tag = "project", operation_id = "project_features",
    params(FeatureQuery),
    responses((status = 200, description = "The features", body = ref("#/components/schemas/ProjectFeatures")), Problems))]
async fn list(
    State(state): State<ProjectState>,
    By(caller): By,
    query: Params<FeatureQuery>,
) -> Result<Response, Problem> {
    let query = query.read()?;
    let standing = query
        .standing
        .filter(|word| !word.is_empty())
        .map(standing)
        .transpose()?;
    let wanted = wanted(query.limit, query.after)?;
    let read = state.read(&caller, "forge.features_list", move |project| {
        let listed = Features::new(project).list()?;
        let mut features = listed.features;
        features.retain(|item| standing.is_none_or(|standing| item.standing == standing));
        let features = ListPage::of(features, &wanted, |item| item.feature.id.clone())?;
        Ok(FeatureList {
            etag: listed.etag,
            counts: listed.counts,
            features,
        })
    });
    json(&read.await?)
}

fn standing(word: String) -> Result<Standing, Problem> {
    serde_json::from_value(Value::String(word)).map_err(|_| {
        Problem::new(
            Code::InvalidInput,
            "standing is one that features have, such as \"passing\"",
        )
    })
}

/// Returns the focus of the current session with its version tag; null if there is none.
#[utoipa::path(get, path = "/api/v1/project/focus", tag = "project", operation_id = "project_focus",
    responses((status = 200, description = "The focus", body = ref("#/components/schemas/ProjectFocus")), Problems))]
async fn focus(State(state): State<ProjectState>, By(caller): By) -> Result<Response, Problem> {
    let read = state.read(&caller, "forge.prime", |project| {
        Sessions::new(project).focus_now()?.show()
    });
    json(&read.await?)
}
