//! Parts of a request: values of the path, query parameters.

use std::convert::Infallible;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, RawPathParams};
use helmdeck_core::Code;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// Values in the path, decoded.
///
/// A path that is not UTF-8 is answered with a problem, not with axum's plain text.
pub(crate) enum PathValues {
    /// As the router read them.
    Routed(RawPathParams),
    /// The value `name` alone, of a request that needed no router.
    Name(Box<str>),
}

impl PathValues {
    /// Returns a value by its name in the route.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        match self {
            Self::Routed(values) => values
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value),
            Self::Name(value) => (name == "name").then_some(value),
        }
    }

    /// Returns a value that every path of the route has.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathValues {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let wrong = |_| {
            Problem::http(
                StatusCode::BAD_REQUEST,
                "the path is not UTF-8 when it is decoded",
            )
        };
        RawPathParams::from_request_parts(parts, state)
            .await
            .map(Self::Routed)
            .map_err(wrong)
    }
}

/// Query parameters. Errors are reported only when the handler reads them.
///
/// That is after it has checked the caller.
pub(crate) struct Params<T>(Result<T, Problem>);

impl<T: DeserializeOwned> Params<T> {
    pub(crate) fn of(parts: &Parts) -> Self {
        let wrong =
            |rejection: QueryRejection| Problem::new(Code::InvalidInput, rejection.body_text());
        Self(
            Query::try_from_uri(&parts.uri)
                .map(|Query(values)| values)
                .map_err(wrong),
        )
    }

    pub(crate) fn read(self) -> Result<T, Problem> {
        self.0
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(parts))
    }
}

/// Checks a `limit` and fills in its default.
pub(crate) fn page_size(limit: Option<usize>) -> Result<usize, Problem> {
    const MAX: usize = 1000;
    let limit = limit.unwrap_or(100);
    if (1..=MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::new(
        Code::InvalidInput,
        format!("limit must be 1 to {MAX}"),
    ))
}

/// Percent-encodes a text as one segment of a path, or one value of a query.
pub(crate) fn segment(text: &str) -> String {
    crate::mcp::encode(text).replace('/', "%2F")
}
