//! The values in a request's path, decoded; a path that cannot be decoded is a problem like any other.

use axum::extract::{FromRequestParts, RawPathParams};
use http::StatusCode;
use http::request::Parts;

use crate::problem::Problem;

/// The values in the path. axum alone would answer with plain text where they are not UTF-8.
pub(crate) struct PathValues(pub(crate) RawPathParams);

impl<S: Send + Sync> FromRequestParts<S> for PathValues {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let wrong = |_| Problem::http(StatusCode::BAD_REQUEST, "the path is not UTF-8 when it is decoded");
        RawPathParams::from_request_parts(parts, state).await.map(Self).map_err(wrong)
    }
}

/// Writes a text as one segment of a path, or one value of a query.
pub(super) fn segment(text: &str) -> String {
    crate::mcp::encode(text).replace('/', "%2F")
}
