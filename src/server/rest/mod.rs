//! The REST transport: one file a family of routes, and the table of all of them. A thin skin: nothing is decided here that
//! another transport would have to decide as well.

pub(crate) mod artifacts;
pub(crate) mod body;
mod cache_headers;
pub(crate) mod conversations;
pub(crate) mod defaults;
mod directive;
pub(crate) mod events;
pub(crate) mod facts;
#[cfg(test)]
mod job_tests;
pub(crate) mod jobs;
pub(crate) mod memory;
pub(crate) mod operations;
pub(crate) mod packs;
mod path;
mod prefer;
pub(crate) mod session_header;
pub(crate) mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use helmdeck_core::Code;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use self::conversations::{turns, whole};
use crate::app::App;
use crate::problem::Problem;
use crate::{docs, openapi};

/// The media type of JSON answers.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Every route. Each has a line in [`openapi::Routes`] too, save those that are about the API and not part of it.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/api/v1/packs", get(packs::list))
        .route("/api/v1/packs/{name}", get(packs::show).post(packs::run))
        .route("/api/v1/packs/{name}/{version}", get(packs::show).post(packs::run))
        .route("/api/v1/packs/{name}/jobs", post(jobs::start))
        .route("/api/v1/jobs", get(jobs::list))
        .route("/api/v1/jobs/{id}", get(jobs::show).delete(jobs::cancel))
        .route("/api/v1/jobs/{id}/result", get(jobs::result))
        .route("/api/v1/jobs/{id}/events", get(events::follow))
        .route("/api/v1/artifacts", get(artifacts::list))
        .route("/api/v1/artifacts/{*key}", get(artifacts::download).delete(artifacts::delete))
        .route("/api/v1/sessions", get(sessions::list))
        .route("/api/v1/sessions/{id}", delete(sessions::end))
        .route("/api/v1/memory/namespaces", get(memory::namespaces))
        .route("/api/v1/memory/entries", get(memory::entries))
        .route("/api/v1/memory/purge", post(memory::purge))
        .route("/api/v1/memory/store", post(facts::store))
        .route("/api/v1/memory/recall", post(facts::recall))
        .route("/api/v1/memory/forget", post(facts::forget))
        .route("/api/v1/memory/facts", get(facts::list))
        .route("/api/v1/memory/defaults", get(defaults::show))
        .route("/api/v1/conversations", get(conversations::list))
        .route("/api/v1/conversations/{session}", delete(whole::forget))
        .route("/api/v1/conversations/{session}/turns", get(turns::list).post(turns::add))
        .route("/api/v1/conversations/{session}/turns/{turn}", get(turns::show).delete(turns::delete))
        .route("/api/v1/conversations/{session}/context", get(conversations::context))
        .route("/api/v1/conversations/{session}/health", get(conversations::health))
        .route("/api/v1/conversations/{session}/trace", get(conversations::trace))
        .route("/api/v1/conversations/{session}/snapshot", get(whole::snapshot))
        .route("/api/v1/conversations/{session}/restore", post(whole::restore))
        .route("/api/v1/conversations/{session}/flush", post(whole::flush))
        .route("/api/v1/conversations/{session}/fold", post(whole::fold))
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/docs", get(docs::page))
        .route("/docs.css", get(docs::style))
        .route("/healthz", get(operations::healthz))
        .route("/readyz", get(operations::readyz))
        .route("/metrics", get(operations::metrics))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(app)
}

async fn no_route(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(Code::NotFound, format!("there is nothing at {path:?}; see /docs")).into_response()
}

async fn no_method(request: Request) -> Response {
    let detail = format!("{} is not answered here; the Allow header says what is", request.method());
    Problem::http(StatusCode::METHOD_NOT_ALLOWED, detail).into_response()
}

/// Answers with a value as JSON that no cache may keep, because what it says is of now and for this caller.
fn json<T: Serialize + ?Sized>(value: &T) -> Result<Response, Problem> {
    let text = serde_json::to_vec(value).map_err(unwritable)?;
    Ok(([(CONTENT_TYPE, JSON), (http::header::CACHE_CONTROL, NO_STORE)], text).into_response())
}

fn unwritable(error: serde_json::Error) -> helmdeck_core::Error {
    helmdeck_core::Error::new(Code::Internal, "the answer cannot be written").with_source(error)
}

/// Waits for an answer of the store or the disk, for at most as long as a request may take.
async fn in_time<T>(app: &App, answer: impl Future<Output = T>) -> Result<T, Problem> {
    let late = |_| Problem::new(Code::Timeout, "the request took longer than it may");
    tokio::time::timeout(app.config.request_deadline, answer).await.map_err(late)
}

pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Tells browsers to take a media type as it is written (Fetch standard, section 3.6).
pub(crate) const NOSNIFF: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
