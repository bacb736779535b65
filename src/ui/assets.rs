//! The style sheet and the script.
//!
//! Their paths have a digest of their content, so that browsers keep them for a year.

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

/// A file that pages load.
struct Asset {
    text: &'static str,
    extension: &'static str,
    media_type: &'static str,
    path: OnceLock<String>,
}

static STYLE: Asset = Asset::new(
    include_str!("assets/ui.css"),
    "css",
    "text/css; charset=utf-8",
);
static SCRIPT: Asset = Asset::new(
    include_str!("assets/live.js"),
    "js",
    "text/javascript; charset=utf-8",
);

impl Asset {
    const fn new(text: &'static str, extension: &'static str, media_type: &'static str) -> Self {
        Self {
            text,
            extension,
            media_type,
            path: OnceLock::new(),
        }
    }

    fn path(&self) -> &str {
        let path = || {
            format!(
                "/ui/assets/{}.{}",
                hex(&Sha256::digest(self.text)[..8]),
                self.extension
            )
        };
        self.path.get_or_init(path)
    }
}

/// Returns the path of the style sheet.
pub(crate) fn style_path() -> &'static str {
    STYLE.path()
}

/// Returns the path of the script for live updates.
pub(crate) fn script_path() -> &'static str {
    SCRIPT.path()
}

/// Answers with an asset.
pub(crate) async fn asset(State(ui): State<Ui>, By(caller): By, uri: Uri) -> Response {
    let Some(asset) = [&STYLE, &SCRIPT]
        .into_iter()
        .find(|asset| asset.path() == uri.path())
    else {
        let failure = Failure::new(StatusCode::NOT_FOUND, "there is no such file");
        return failed(&ui, &caller, Place::Overview, &failure);
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(asset.media_type)),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=31536000, immutable"),
        ),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, asset.text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_small_and_loads_nothing() {
        assert!(SCRIPT.text.len() < 10 << 10, "{} bytes", SCRIPT.text.len());
        for forbidden in [
            "import ",
            "import(",
            "eval(",
            "new Function",
            "http:",
            "https:",
        ] {
            assert!(!SCRIPT.text.contains(forbidden), "{forbidden}");
        }
    }
}
