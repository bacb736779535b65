//! What an operator's tools ask: is it alive, is it ready, what did it count. No answer here holds a caller's data.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use helmdeck_core::Permission;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value};

use super::{NO_STORE, conversations, json};
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

/// The media type of `OpenMetrics` text.
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Says that the process answers.
#[utoipa::path(get, path = "/healthz", tag = "operations", operation_id = "health", responses(
    (status = 200, description = "It answers", body = ref("#/components/schemas/Health")),
))]
pub(crate) async fn healthz() -> Result<Response, Problem> {
    json(&serde_json::json!({ "status": "ok" }))
}

/// Says whether calls can be answered, check by check: `ok` or what is wrong.
///
/// A failing memory store costs the cache and not the calls, and a place of files that does not answer costs the files: the server is
/// `degraded` then, which is ready.
#[utoipa::path(get, path = "/readyz", tag = "operations", operation_id = "readiness", responses(
    (status = 200, description = "It is ready", body = ref("#/components/schemas/Readiness")),
    (status = 503, description = "It is not", body = ref("#/components/schemas/Readiness")),
))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let checks = app.engine.ready();
    let failed: Vec<_> = checks.iter().filter(|(_, result)| result.is_err()).map(|(name, _)| *name).collect();
    let status = match failed[..] {
        [] => "ready",
        // Neither is needed by packs that write no files.
        ref some if some.iter().all(|name| ["store", "artifacts", "manifests"].contains(name)) => "degraded",
        _ => "not_ready",
    };
    let checks: Map<String, Value> = checks
        .into_iter()
        .map(|(name, result)| (name.to_owned(), result.err().unwrap_or_else(|| "ok".to_owned()).into()))
        .collect();
    let mut response = json(&serde_json::json!({ "status": status, "checks": checks }))?;
    if status == "not_ready" {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

/// Gives the counters as `OpenMetrics` text.
#[utoipa::path(get, path = "/metrics", tag = "operations", operation_id = "metrics", responses(
    (status = 200, description = "The counters", content_type = "application/openmetrics-text", body = String),
))]
pub(crate) async fn metrics(State(app): State<Arc<App>>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::MetricsRead)?;
    let headers = [(CONTENT_TYPE, OPEN_METRICS), (http::header::CACHE_CONTROL, NO_STORE)];
    let mut text = app.engine.metrics();
    if let Some(memory) = app.conversations.opened() {
        text = conversations::metrics::add(text, &memory.metrics());
    }
    Ok((headers, text).into_response())
}
