//! Route of a caller's habits, taken from the audit.
//!
//! It shows no stored value except the inputs that may be learned.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::Permission;
use helmdeck_engine::Defaults;
use helmdeck_memory::Namespace;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::memory::need_own;
use super::reply::{Problems, json};
use super::request::Params;
use super::state::EngineState;
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(show))
}

/// Whose habits to show.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Whose {
    /// The tenant; the caller's own by default
    tenant: Option<String>,
    /// The user; the caller itself by default
    subject: Option<String>,
}

#[derive(Serialize)]
struct DefaultsReply<'a> {
    tenant: &'a str,
    subject: &'a str,
    #[serde(flatten)]
    defaults: Defaults,
}

/// Shows a caller's habits from the audit: its packs, its usual inputs, common findings, its newest calls.
///
/// Only an administrator can ask about somebody else. `note` says if there is no history yet.
#[utoipa::path(get, path = "/api/v1/memory/defaults", tag = "memory", operation_id = "show_defaults",
    params(Whose),
    responses((status = 200, description = "The habits", body = ref("#/components/schemas/Defaults")), Problems))]
async fn show(State(state): State<EngineState>, By(caller): By, whose: Params<Whose>) -> Result<Response, Problem> {
    need(&caller, &Permission::MemoryRead)?;
    let whose = whose.read()?;
    let memory = state.memory()?;
    let asked = Namespace::new(
        whose.tenant.as_deref().unwrap_or(caller.identity.tenant()),
        whose.subject.as_deref().unwrap_or(caller.identity.user()),
        None,
    );
    need_own(&caller, &asked)?;
    let defaults = state.limits.in_time(memory.defaults(&asked)).await??;
    json(&DefaultsReply { tenant: &asked.tenant, subject: &asked.subject, defaults })
}
