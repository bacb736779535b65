//! The pages for people, behind sign-in: mounts `helmdeck-ui` beside the REST routes.

use std::sync::Arc;

use aes_gcm::aead::Generate;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use helmdeck_core::{Caller, Clock};
use helmdeck_ui::{Settings, sign_in_page, signed_in_page};
use http::header::{ACCEPT, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};

use crate::access::provider::{CALLBACK, ended_attempt};
use crate::access::{Access, is_local};
use crate::rest::{no_method, no_route};
use crate::validity::EndsCredential;

/// Limit of the form that signs in, in bytes: a token has at most 8 KiB.
const MAX_SIGN_IN_BYTES: usize = 16 << 10;
/// Path of the page that signs in.
const SIGN_IN: &str = "/ui/sign-in";

/// Parts of the server that have pages.
pub(crate) struct Parts {
    pub(crate) memory: bool,
    pub(crate) tokens: bool,
    pub(crate) vault: bool,
    /// Key of the forms' tokens, if other servers have the same one.
    pub(crate) form_key: Option<[u8; 32]>,
}

/// Adds the pages to the REST routes. `/` leads browsers to them.
pub(crate) fn with_pages(
    rest: Router,
    parts: Parts,
    access: Option<Arc<Access>>,
    clock: &Arc<dyn Clock>,
) -> Router {
    // Without random bytes there is no safe form, so there are no pages.
    let Parts {
        memory,
        tokens,
        vault,
        form_key,
    } = parts;
    let Some(form_key) = form_key.or_else(|| <[u8; 32]>::try_generate().ok()) else {
        tracing::error!("the system has no random numbers, so there are no pages");
        return rest;
    };
    let settings = Settings {
        memory,
        tokens,
        vault,
        signs_in: access.is_some(),
        form_key,
        clock: Arc::clone(clock),
    };
    let mut pages = helmdeck_ui::router(rest.clone(), settings);
    if let Some(access) = access {
        let sign_in = Router::new()
            .route(SIGN_IN, get(ask).post(sign_in))
            .route("/ui/sign-in/provider", get(depart))
            .route(CALLBACK, get(arrive))
            .route("/ui/sign-out", post(sign_out))
            .with_state(Arc::clone(&access));
        pages = pages
            .layer(middleware::from_fn_with_state(access, signed_in))
            .merge(sign_in);
    }
    // The answer to a wrong method is set per router, and the REST routes have theirs already.
    rest.merge(
        pages
            .route("/", get(root))
            .method_not_allowed_fallback(no_method),
    )
}

/// Leads a browser to the pages.
async fn root(request: Request) -> Response {
    let accepted = request
        .headers()
        .get(ACCEPT)
        .and_then(|kinds| kinds.to_str().ok());
    if accepted.is_some_and(|kinds| kinds.contains("text/html")) {
        return Redirect::to("/ui").into_response();
    }
    no_route(request).await
}

/// Sends visitors who have not signed in to where they can.
async fn signed_in(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let known = request
        .extensions()
        .get::<Caller>()
        .is_some_and(|caller| !caller.identity.is_anonymous());
    if known || request.uri().path().starts_with("/ui/assets/") {
        return next.run(request).await;
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Redirect::to(SIGN_IN).into_response();
    }
    sign_in_page(
        Some("You are not signed in any more. Nothing was changed."),
        access.has_provider(),
    )
}

async fn ask(State(access): State<Arc<Access>>) -> Response {
    sign_in_page(None, access.has_provider())
}

async fn sign_in(State(access): State<Arc<Access>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let refuse = |trouble: &str| sign_in_page(Some(trouble), access.has_provider());
    let Ok(body) = Limited::new(body, MAX_SIGN_IN_BYTES).collect().await else {
        return refuse("The form is too large.");
    };
    let bytes = body.to_bytes();
    let token = form_urlencoded::parse(&bytes)
        .find(|(name, _)| name == "token")
        .map(|(_, value)| value);
    match access
        .sign_in(token.as_deref().unwrap_or_default(), &parts.headers)
        .await
    {
        Ok(cookie) => (
            Extension(EndsCredential),
            [(SET_COOKIE, cookie)],
            Redirect::to("/ui"),
        )
            .into_response(),
        Err(trouble) => refuse(&trouble),
    }
}

/// Sends the browser to the identity provider.
async fn depart(State(access): State<Arc<Access>>, headers: HeaderMap) -> Response {
    match access.depart(&headers).await {
        Ok(departure) => (
            [(SET_COOKIE, departure.cookie)],
            Redirect::to(&departure.location),
        )
            .into_response(),
        Err(trouble) => sign_in_page(Some(&trouble), access.has_provider()),
    }
}

/// Signs the browser in that the identity provider sent back.
async fn arrive(
    State(access): State<Arc<Access>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let arriving = async {
        let caller = access
            .arrive(query.as_deref().unwrap_or_default(), &headers)
            .await?;
        let cookie = access
            .signed_in(&caller, !is_local(&headers), &headers)
            .await?;
        Ok::<_, String>((cookie, ended_attempt(&headers)?))
    };
    match arriving.await {
        Ok((cookie, ended)) => {
            let cookies = AppendHeaders([(SET_COOKIE, cookie), (SET_COOKIE, ended)]);
            (Extension(EndsCredential), cookies, signed_in_page()).into_response()
        }
        Err(trouble) => sign_in_page(Some(&trouble), access.has_provider()),
    }
}

async fn sign_out(State(access): State<Arc<Access>>, headers: HeaderMap) -> Response {
    match access.sign_out(&headers).await {
        Ok(cookie) => (
            Extension(EndsCredential),
            [(SET_COOKIE, cookie)],
            Redirect::to(SIGN_IN),
        )
            .into_response(),
        Err(trouble) => (
            StatusCode::SERVICE_UNAVAILABLE,
            sign_in_page(Some(&trouble), access.has_provider()),
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests;
