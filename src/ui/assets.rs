//! The style sheet. Its path has a digest of its content, so that browsers keep it for a year.

use std::sync::OnceLock;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use helmdeck_core::hex;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode, Uri};
use sha2::{Digest, Sha256};

use crate::Ui;
use crate::frame::{Place, failed};
use crate::request::By;
use crate::rest::Failure;

const STYLE: &str = include_str!("assets/ui.css");

/// Returns the path of the style sheet.
pub(crate) fn style_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| format!("/ui/assets/{}.css", hex(&Sha256::digest(STYLE)[..8])))
}

/// Answers with an asset.
pub(crate) async fn asset(State(ui): State<Ui>, By(caller): By, uri: Uri) -> Response {
    if uri.path() != style_path() {
        let failure = Failure::new(StatusCode::NOT_FOUND, "there is no such file");
        return failed(&ui, &caller, Place::Overview, &failure);
    }
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, STYLE).into_response()
}
