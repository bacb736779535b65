//! The page that asks for a token.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use crate::assets;
use crate::frame::with_status;

/// Page that asks for a token.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    style: &'static str,
    trouble: Option<&'a str>,
}

/// Answers with the page that asks for a token, and what was wrong with the last one.
///
/// Its form is sent to `/ui/sign-in` with the field `token`.
pub fn sign_in_page(trouble: Option<&str>) -> Response {
    let status = if trouble.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    with_status(status, &SignInPage { style: assets::style_path(), trouble })
}
