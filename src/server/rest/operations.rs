//! Routes for operators: liveness, readiness and metrics. They show no data of callers.

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::response::{IntoResponse, Response};
use helmdeck_conversation::Conversations;
use helmdeck_core::Permission;
use helmdeck_engine::Engine;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::json;
use crate::access::{Access, By, RecordState, need};
use crate::app::App;
use crate::draining::Draining;
use crate::headers::NO_STORE;
use crate::problem::Problem;

/// The media type of `OpenMetrics` text.
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Checks whose failure leaves a server ready.
const DEGRADED: [&str; 5] = ["store", "artifacts", "manifests", "vault", "tokens"];

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
}

/// Answers a health check: liveness or readiness.
pub(crate) async fn health(app: &App, path: &str) -> Response {
    let answer = match path {
        "/healthz" => healthz().await,
        _ => {
            readyz(
                State(FromRef::from_ref(app)),
                State(FromRef::from_ref(app)),
                State(FromRef::from_ref(app)),
            )
            .await
        }
    };
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// Says that the process answers.
#[utoipa::path(get, path = "/healthz", tag = "operations", operation_id = "health",
    responses((status = 200, description = "It answers", body = ref("#/components/schemas/Health"))))]
async fn healthz() -> Result<Response, Problem> {
    json(&serde_json::json!({ "status": "ok" }))
}

/// Says whether calls can be answered, check by check: `ok` or what is wrong.
///
/// If the memory store fails, answers are not cached; if the storage of artifacts fails, packs
/// cannot write files. While the record of API tokens cannot be reached, those that were good are
/// good for a while (`auth.grace`); while the vault cannot, packs with credentials fail. In each
/// case the server is `degraded`, and still ready. A server that was told to stop is `draining`: it
/// answers, and balancers should choose another.
#[utoipa::path(get, path = "/readyz", tag = "operations", operation_id = "readiness",
    responses(
        (status = 200, description = "It is ready", body = ref("#/components/schemas/Readiness")),
        (status = 503, description = "It is not", body = ref("#/components/schemas/Readiness")),
    ))]
async fn readyz(
    State(engine): State<Engine>,
    State(access): State<Option<Arc<Access>>>,
    State(draining): State<Draining>,
) -> Result<Response, Problem> {
    let mut checks = engine.ready().await;
    let record = match access {
        Some(access) => access.record_state().await,
        None => RecordState::Unused,
    };
    match record {
        RecordState::Unused => {}
        RecordState::Reachable => checks.push(("tokens", Ok(()))),
        RecordState::InGrace => {
            let why = "their record cannot be reached; those that were good stay good for auth.grace, others are refused";
            checks.push(("tokens", Err(why.to_owned())));
        }
        RecordState::Away => {
            checks.push((
                "tokens",
                Err("their record cannot be reached; all are refused".to_owned()),
            ));
        }
    }
    let failed: Vec<_> = checks
        .iter()
        .filter(|(_, result)| result.is_err())
        .map(|(name, _)| *name)
        .collect();
    let status = match failed[..] {
        _ if draining.has_begun() => "draining",
        [] => "ready",
        _ if record == RecordState::Away => "not_ready",
        // Cached packs that write no files need none of these.
        ref some if some.iter().all(|name| DEGRADED.contains(name)) => "degraded",
        _ => "not_ready",
    };
    let checks: Map<String, Value> = checks
        .into_iter()
        .map(|(name, result)| {
            (
                name.to_owned(),
                result.err().unwrap_or_else(|| "ok".to_owned()).into(),
            )
        })
        .collect();
    let mut response = json(&serde_json::json!({ "status": status, "checks": checks }))?;
    if ["not_ready", "draining"].contains(&status) {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

/// Returns the counters as `OpenMetrics` text.
#[utoipa::path(get, path = "/metrics", tag = "operations", operation_id = "metrics",
    responses((status = 200, description = "The counters", content_type = "application/openmetrics-text", body = String)))]
async fn metrics(
    State(engine): State<Engine>,
    State(conversations): State<Conversations>,
    By(caller): By,
) -> Result<Response, Problem> {
    need(&caller, &Permission::MetricsRead)?;
    let headers = [(CONTENT_TYPE, OPEN_METRICS), (CACHE_CONTROL, NO_STORE)];
    Ok((headers, crate::metrics::metrics(&engine, &conversations)).into_response())
}
