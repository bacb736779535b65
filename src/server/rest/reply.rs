//! Answers of handlers: JSON, no content, and the errors that every operation may return.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use helmdeck_core::Code;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use crate::headers::{JSON, NO_STORE};
use crate::problem::Problem;

/// The default response of an operation, for the `OpenAPI` document: problem details.
pub(crate) struct Problems;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let content = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("Problem")))
            .build();
        let response = ResponseBuilder::new()
            .description("What went wrong")
            .content("application/problem+json", content)
            .build();
        BTreeMap::from([("default".to_owned(), response.into())])
    }
}

/// Answers with a value as JSON. No cache may keep it: it holds for this caller at this moment.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<Response, Problem> {
    let text = serde_json::to_vec(value).map_err(unwritable)?;
    Ok(([(CONTENT_TYPE, JSON), (CACHE_CONTROL, NO_STORE)], text).into_response())
}

/// Answers with an outcome, which has its own freshness.
pub(crate) fn outcome(body: Bytes) -> Response {
    let mut response = Response::new(axum::body::Body::from(body));
    let mut headers = http::HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, JSON);
    *response.headers_mut() = headers;
    response
}

/// Answers with success and no body.
pub(crate) fn nothing() -> Response {
    (StatusCode::NO_CONTENT, [(CACHE_CONTROL, NO_STORE)]).into_response()
}

pub(crate) fn unwritable(error: serde_json::Error) -> helmdeck_core::Error {
    helmdeck_core::Error::new(Code::Internal, "the answer cannot be written").with_source(error)
}
