//! Changes of the project that people make on a page. They run no program, and go through the rules
//! of the project.

use axum::extract::{Request, State};
use axum::response::Response;
use helmdeck_core::Caller;
use helmdeck_forge::features::{BlockedBy, Edit as FeatureEdit, Features, Status};
use helmdeck_forge::knowledge::{Knowledge, Learning, What};
use helmdeck_forge::{Category, Error, Project, Time};
use helmdeck_forge_documents::tracking::{Conflict, Field};
use helmdeck_trackers::sync::{self, Choice};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ProjectState, check};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json};
use crate::rest::request::PathValues;

/// Limit of the body of a change, in bytes: an issue's description may be long.
const MAX_CHANGE_BYTES: u64 = 256 << 10;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(set_feature))
        .routes(routes!(confirm))
        .routes(routes!(supersede))
        .routes(routes!(resolve))
}

/// Reads a change from a request and makes it, if the caller may run the pack that does the same.
async fn make<C: DeserializeOwned + Send + 'static, T: Serialize + Send + 'static>(
    state: &ProjectState,
    caller: &Caller,
    pack: &str,
    request: Request,
    work: impl FnOnce(&Project, C) -> helmdeck_forge::Result<T> + Send + 'static,
) -> Result<Response, Problem> {
    check(caller, pack)?;
    let change: C = state.limits.read_json(request, MAX_CHANGE_BYTES).await?;
    json(
        &state
            .change(caller, pack, move |project| work(project, change))
            .await?,
    )
}

/// Change of a feature's status.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FeatureStatus {
    /// Version tag that the file of the features must have.
    if_match: Option<String>,
    /// The status. `passing` is refused: only tests show that.
    status: Status,
    /// The reason of the status; an empty one removes it.
    reason: Option<String>,
    /// What it waits for: ids of features, or a text.
    blocked_by: Option<BlockedBy>,
}

/// Changes the status of a feature through its rules. No feature passes by this: its tests must
/// show it.
#[utoipa::path(post, path = "/api/v1/project/features/{feature}", tag = "project", operation_id = "set_project_feature",
    params(("feature" = String, Path, description = "The id of the feature")),
    request_body(content = ref("#/components/schemas/ProjectFeatureStatus"), content_type = "application/json", description = "The status"),
    responses((status = 200, description = "The feature now", body = ref("#/components/schemas/ProjectFeatureChanged")), Problems))]
async fn set_feature(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let id = path.value("feature").to_owned();
    make(
        &state,
        &caller,
        "forge.features_set",
        request,
        move |project, change: FeatureStatus| {
            let edit = FeatureEdit {
                status: Some(change.status),
                reason: change.reason,
                blocked_by: change.blocked_by,
                ..FeatureEdit::default()
            };
            Features::new(project).set(&id, &edit, change.if_match.as_deref())
        },
    )
    .await
}

/// Condition of a change.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    /// Version tag that the file must have.
    if_match: Option<String>,
}

/// Confirms that an entry of the knowledge still holds.
#[utoipa::path(post, path = "/api/v1/project/knowledge/{id}/confirm", tag = "project", operation_id = "confirm_project_knowledge",
    params(("id" = String, Path, description = "The id of the entry")),
    request_body(content = ref("#/components/schemas/ProjectCondition"), content_type = "application/json", description = "The condition"),
    responses((status = 200, description = "What was confirmed", body = ref("#/components/schemas/ProjectConfirmed")), Problems))]
async fn confirm(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let id = path.value("id").to_owned();
    make(
        &state,
        &caller,
        "forge.remember",
        request,
        move |project, condition: Condition| {
            Knowledge::new(project).confirm(&id, condition.if_match.as_deref())
        },
    )
    .await
}

/// What replaces an entry of the knowledge.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct Replacement {
    /// Version tag that the file must have.
    if_match: Option<String>,
    #[serde(flatten)]
    by: Learning,
}

/// Replaces an entry of the knowledge by a new one. The old one stays, marked as superseded.
///
/// The check of an invariant is a command, so it is not set here.
#[utoipa::path(post, path = "/api/v1/project/knowledge/{id}/supersede", tag = "project", operation_id = "supersede_project_knowledge",
    params(("id" = String, Path, description = "The id of the entry")),
    request_body(content = ref("#/components/schemas/ProjectReplacement"), content_type = "application/json", description = "The new entry"),
    responses((status = 200, description = "Both entries", body = ref("#/components/schemas/ProjectSuperseded")), Problems))]
async fn supersede(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let id = path.value("id").to_owned();
    make(
        &state,
        &caller,
        "forge.remember",
        request,
        move |project, replacement: Replacement| {
            if matches!(replacement.by.what, What::Invariant { check: Some(_), .. }) {
                let message = "a check is a command, and no caller of the server may name one";
                return Err(Error::refused(message)
                    .hint("leave \"check\" out, or supersede the entry at a shell"));
            }
            // Who sends this has no session here, and git says the commit.
            let by = Learning {
                session: None,
                commit: None,
                ..replacement.by
            };
            Knowledge::new(project).supersede(&id, &by, replacement.if_match.as_deref())
        },
    )
    .await
}

/// Decision about a conflict.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolution {
    /// The key of the issue.
    key: String,
    /// The field.
    field: Field,
    /// Which value counts.
    choice: ChosenSide,
    /// The value, if it is a third one.
    value: Option<String>,
    /// Since when the field is in conflict, as the caller saw it.
    since: Option<Time>,
}

/// Which value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChosenSide {
    /// The value here; it is pushed.
    Ours,
    /// The value in the tracker.
    Theirs,
    /// A third value; it is pushed.
    Value,
}

/// Settles a field of an issue that was changed here and in the tracker. The tracker is not asked.
#[utoipa::path(post, path = "/api/v1/project/tracker/resolve", tag = "project", operation_id = "resolve_project_conflict",
    request_body(content = ref("#/components/schemas/ProjectResolution"), content_type = "application/json", description = "The decision"),
    responses((status = 200, description = "The conflict that was settled", body = ref("#/components/schemas/ProjectConflict")), Problems))]
async fn resolve(
    State(state): State<ProjectState>,
    By(caller): By,
    request: Request,
) -> Result<Response, Problem> {
    make(&state, &caller, "forge.issue_set", request, settle).await
}

fn settle(project: &Project, wanted: Resolution) -> helmdeck_forge::Result<Conflict> {
    let choice = match (wanted.choice, wanted.value) {
        (ChosenSide::Ours, None) => Choice::Ours,
        (ChosenSide::Theirs, None) => Choice::Theirs,
        (ChosenSide::Value, Some(value)) => Choice::Value(value),
        _ => {
            return Err(Error::usage(
                "a value belongs to the choice \"value\", and to no other",
            ));
        }
    };
    let key = &wanted.key;
    if let Some(since) = wanted.since {
        let conflicts = sync::status(project)?.conflicts;
        let seen = conflicts
            .iter()
            .find(|one| one.key == *key && one.field == wanted.field);
        if seen.is_some_and(|one| one.since != since) {
            let message = format!(
                "the field {} of {key} has changed since it was read",
                wanted.field
            );
            return Err(Error::new(Category::Stale, "E_STALE", message)
                .hint("read it again, and decide anew"));
        }
    }
    project.check_not_paused()?;
    sync::resolve(project, key, wanted.field, &choice)
}
