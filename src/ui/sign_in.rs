//! The page that asks for a token, and the script that fills in that of a sign-in link.

use std::sync::OnceLock;

use askama::Template;
use axum::response::{IntoResponse, Response};
use helmdeck_core::hex;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::assets;
use crate::frame::answer;

/// Moves the token of a link from the address to the form. The fragment of an address reaches no
/// server and no log.
const SCRIPT: &str = include_str!("assets/sign_in.js");

/// Page that asks for a token.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    style: &'static str,
    script: &'static str,
    trouble: Option<&'a str>,
    /// Whether the identity provider can sign people in.
    provider: bool,
}

/// Page after a sign-in at the identity provider.
#[derive(Template)]
#[template(path = "signed_in.html")]
struct SignedInPage {
    style: &'static str,
}

/// Answers with the page that asks for a token, and what was wrong with the last one.
///
/// Its form is sent to `/ui/sign-in` with the field `token`. With a `provider` it has a button for
/// `/ui/sign-in/provider`.
pub fn sign_in_page(trouble: Option<&str>, provider: bool) -> Response {
    let status = if trouble.is_some() {
        StatusCode::UNAUTHORIZED
    } else {
        StatusCode::OK
    };
    let page = SignInPage {
        style: assets::style_path(),
        script: script_path(),
        trouble,
        provider,
    };
    answer(status, page.render())
}

/// Answers with a page that leads on to the overview.
///
/// A browser does not send a strict cookie with a redirect that another site began, but with a step
/// of our page.
pub fn signed_in_page() -> Response {
    answer(
        StatusCode::OK,
        SignedInPage {
            style: assets::style_path(),
        }
        .render(),
    )
}

/// Returns the path of the script.
pub(crate) fn script_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| format!("/ui/assets/{}.js", hex(&Sha256::digest(SCRIPT)[..8])))
}

/// Answers with the script.
pub(crate) async fn script() -> Response {
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/javascript; charset=utf-8"),
        ),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=31536000, immutable"),
        ),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, SCRIPT).into_response()
}
