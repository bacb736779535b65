//! The distance to the last checkpoint, and the pause.

use axum::extract::{Request, State};
use axum::response::Response;
use helmdeck_core::Permission;
use helmdeck_forge::recovery::{
    Ack, Assess, By as Person, Paused, Recovery, Report, TOKEN_SECONDS,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ProjectState;
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json as answer};
use crate::rest::state::MAX_REQUEST_BYTES;

const PACK: &str = "forge.recover_assess";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(assess))
        .routes(routes!(token))
        .routes(routes!(acknowledge))
}

/// The pause and the assessment.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct RecoveryView {
    /// Why work is paused; null if it is not.
    paused: Option<Paused>,
    /// The distance to the last checkpoint; null if there is no repository.
    report: Option<Report>,
}

/// Measures the distance to the last checkpoint without running anything, and says whether work is
/// paused.
#[utoipa::path(get, path = "/api/v1/project/recovery", tag = "project", operation_id = "project_recovery",
    responses((status = 200, description = "The assessment", body = ref("#/components/schemas/ProjectRecovery")), Problems))]
async fn assess(State(state): State<ProjectState>, By(caller): By) -> Result<Response, Problem> {
    let read = state.read(&caller, PACK, |project| {
        // The record of the token is of use to nobody but the check of a token.
        let paused = Recovery::new(project).paused()?.map(|paused| Paused {
            token: None,
            ..paused
        });
        let report = match Recovery::new(project).assess(Assess { verify: false }) {
            Ok(report) => Some(report),
            Err(error) if error.code == "E_NOT_A_REPO" => None,
            Err(error) => return Err(error),
        };
        Ok(RecoveryView { paused, report })
    });
    answer(&read.await?)
}

/// Makes a token that ends the pause once, within 15 minutes. It is for a page that a person looks
/// at.
///
/// A new token replaces the one before. No agent may get it: the right is that of an administrator.
#[utoipa::path(post, path = "/api/v1/project/recovery/token", tag = "project", operation_id = "project_pause_token",
    responses((status = 200, description = "The token", body = ref("#/components/schemas/ProjectPauseToken")), Problems))]
async fn token(State(state): State<ProjectState>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let token = state
        .change(&caller, PACK, |project| Recovery::new(project).token())
        .await?;
    answer(&json!({ "token": token, "seconds": TOKEN_SECONDS }))
}

/// Acknowledgement of a pause.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Acknowledgement {
    /// Why work may go on: 1 to 1,000 characters.
    reason: String,
    /// The token that was shown to a person.
    token: String,
}

/// Ends a pause: a person says why work may go on, with the token that they were shown.
#[utoipa::path(post, path = "/api/v1/project/recovery/acknowledge", tag = "project", operation_id = "project_acknowledge",
    request_body(content = ref("#/components/schemas/ProjectAcknowledgement"), content_type = "application/json", description = "Why"),
    responses((status = 200, description = "What was acknowledged", body = ref("#/components/schemas/ProjectAcknowledged")), Problems))]
async fn acknowledge(
    State(state): State<ProjectState>,
    By(caller): By,
    request: Request,
) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let said: Acknowledgement = state.limits.read_json(request, MAX_REQUEST_BYTES).await?;
    let ack = Ack {
        reason: said.reason,
        by: Person::Token(said.token),
    };
    let answered = state
        .change(&caller, PACK, move |project| {
            Recovery::new(project).ack(&ack)
        })
        .await?;
    tracing::info!(
        user = caller.identity.user(),
        "a person ended the pause of the project"
    );
    answer(&answered)
}
