//! The route that says what the audit shows of a caller's habits. It gives no stored value out but the learnable inputs.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use helmdeck_core::{Code, Permission};
use helmdeck_engine::Defaults;
use helmdeck_memory::Namespace;
use serde::{Deserialize, Serialize};

use super::memory::{memory, need_own};
use super::{in_time, json};
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

/// Whose habits; one's own unless named.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Whose {
    tenant: Option<String>,
    subject: Option<String>,
}

#[derive(Serialize)]
struct Answer<'a> {
    tenant: &'a str,
    subject: &'a str,
    #[serde(flatten)]
    defaults: Defaults,
}

/// Says what the audit shows of a caller's habits: its packs, its usual inputs, common findings, its newest calls.
///
/// Only an administrator may ask about somebody else. `note` says that there is no history yet.
#[utoipa::path(get, path = "/api/v1/memory/defaults", tag = "memory", operation_id = "show_defaults",
    params(
        ("tenant" = Option<String>, Query, description = "The tenant; one's own unless given"),
        ("subject" = Option<String>, Query, description = "The user; oneself unless given"),
    ),
    responses(
        (status = 200, description = "The habits", body = ref("#/components/schemas/Defaults")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    By(caller): By,
    whose: Result<Query<Whose>, QueryRejection>,
) -> Result<Response, Problem> {
    need(&caller, &Permission::MemoryRead)?;
    let Query(whose) = whose.map_err(|rejection| Problem::new(Code::InvalidInput, rejection.body_text()))?;
    let memory = memory(&app)?;
    let asked = Namespace::new(
        whose.tenant.as_deref().unwrap_or(caller.identity.tenant()),
        whose.subject.as_deref().unwrap_or(caller.identity.user()),
        None,
    );
    need_own(&caller, &asked)?;
    let defaults = in_time(&app, memory.defaults(&asked)).await??;
    json(&Answer { tenant: &asked.tenant, subject: &asked.subject, defaults })
}
