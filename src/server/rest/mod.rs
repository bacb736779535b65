//! The REST transport: one file per family of routes, with their handlers, paths and documentation.
//!
//! It decides nothing that another transport would have to decide too.

mod artifacts;
mod audit;
mod cache_headers;
mod call;
mod conversations;
mod credentials;
mod directive;
mod events;
mod explain;
mod facts;
#[cfg(test)]
mod job_tests;
mod jobs;
mod live;
mod mcp_servers;
mod memory;
pub(crate) mod operate;
pub(crate) mod operations;
#[cfg(test)]
pub(crate) mod operator_tests;
pub(crate) mod packs;
mod prefer;
mod preview;
pub(crate) mod project;
mod reply;
mod request;
mod sessions;
pub(crate) mod state;
mod statistics;
#[cfg(test)]
mod tests;
mod tokens;
pub(crate) mod verbs;
pub(crate) mod webhook;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use helmdeck_core::Code;
use http::StatusCode;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;

pub(crate) use self::conversations::metrics::add as conversation_metrics;
use self::state::DocumentState;
use self::webhook::WebhookReceiver;
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::{docs, openapi};

/// The routes that the `OpenAPI` document describes.
fn documented() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::head())
        .merge(packs::routes())
        .merge(explain::routes())
        .merge(jobs::routes())
        .merge(events::routes())
        .merge(artifacts::routes())
        .merge(sessions::routes())
        .merge(memory::routes())
        .merge(facts::routes())
        .merge(audit::routes())
        .merge(conversations::routes())
        .merge(project::routes())
        .merge(verbs::routes())
        .merge(tokens::routes())
        .merge(credentials::routes())
        .merge(mcp_servers::routes())
        .merge(operate::routes())
        .merge(operations::routes())
        .merge(statistics::routes())
        .merge(live::routes())
}

/// Every route, also those about the API that are not part of it, and the webhook if somebody
/// receives it.
pub(crate) fn router(app: App, receiver: Option<Arc<dyn WebhookReceiver>>) -> Router {
    let router = Router::from(documented())
        .route("/api/v1/openapi.json", get(document))
        .route("/docs", get(docs::page))
        .route("/docs.css", get(docs::style))
        .route("/favicon.ico", get(docs::icon))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(app);
    match receiver {
        Some(receiver) => router.merge(
            Router::new()
                .route(webhook::PATH, post(webhook::receive))
                .with_state(receiver),
        ),
        None => router,
    }
}

/// Answers with the document: everything but the packs that the caller may not run.
async fn document(State(state): State<DocumentState>, By(caller): By) -> Response {
    static ROUTES: OnceLock<Value> = OnceLock::new();
    let routes = ROUTES.get_or_init(|| openapi::routes(documented().into_openapi()));
    openapi::answer(
        routes,
        &state.engine,
        &caller.permissions,
        state.authenticates,
    )
}

pub(crate) async fn no_route(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(
        Code::NotFound,
        format!("there is nothing at {path:?}; see /docs"),
    )
    .into_response()
}

pub(crate) async fn no_method(request: Request) -> Response {
    let detail = format!(
        "{} is not allowed here; the Allow header lists the methods that are",
        request.method()
    );
    Problem::http(StatusCode::METHOD_NOT_ALLOWED, detail).into_response()
}
