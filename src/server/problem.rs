//! Errors on the wire: problem details (RFC 9457) with `code`, `fault`, `retry`, `retry_after_ms`
//! and `request_id`.
//!
//! They contain the public text of [`Error::problem`], never a cause.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Code, Correlation, Error};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use crate::headers::{ASK, NO_STORE, PROBLEM_JSON};

/// An error answer.
#[derive(Debug)]
pub(crate) struct Problem {
    error: Error,
    /// An HTTP status (405, 415, ...) that no error code has.
    status: Option<StatusCode>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Makes a problem from an error code.
    pub(crate) fn new(code: Code, detail: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Error::new(code, detail).into()
    }

    /// Makes a problem with a given HTTP status. Its code is `invalid_input`.
    pub(crate) fn http(
        status: StatusCode,
        detail: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Self {
        Self {
            error: Error::new(Code::InvalidInput, detail),
            status: Some(status),
            header: None,
        }
    }

    /// Adds a header to the answer.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }

    /// Returns the status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| {
            StatusCode::from_u16(self.error.code().http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        })
    }

    /// Returns the added header as text.
    #[cfg(test)]
    pub(crate) fn header_text(&self) -> String {
        self.header
            .as_ref()
            .map_or("", |(_, value)| value.to_str().unwrap())
            .to_owned()
    }

    fn body(&self) -> Vec<u8> {
        let mut problem = with_request_id(&self.error);
        if let Some(status) = self.status {
            // RFC 9457, section 4.2.1: with "about:blank" the title is the phrase of the status.
            problem["type"] = "about:blank".into();
            problem["title"] = status.canonical_reason().unwrap_or("error").into();
            problem["status"] = status.as_u16().into();
        }
        problem.to_string().into_bytes()
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self {
            error,
            status: None,
            header: None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        // Caches may keep a 404 that does not forbid it (RFC 9110, section 15.1).
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(after) = self.error.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if let Some((name, value)) = self.header {
            headers.insert(name, value);
        } else if self.error.code() == Code::Unauthenticated {
            // RFC 9110, section 15.5.2: a 401 always says how to authenticate.
            headers.insert(WWW_AUTHENTICATE, ASK);
        }
        response
    }
}

/// Returns the problem of an error with `request_id`, if a request is current.
pub(crate) fn with_request_id(error: &Error) -> Value {
    let mut problem = error.problem();
    Correlation::with_current(|current| {
        if let Some(id) = &current.request_id {
            problem["request_id"] = id.to_string().into();
        }
    });
    problem
}

/// Rounds up to the whole seconds of `Retry-After` (RFC 9110, section 10.2.3).
fn whole_seconds(after: Duration) -> u64 {
    after.as_secs() + u64::from(after.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(problem: Problem) -> (Response<()>, serde_json::Value) {
        let (parts, body) = problem.into_response().into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (
            Response::from_parts(parts, ()),
            serde_json::from_slice(&bytes).unwrap(),
        )
    }

    #[tokio::test]
    async fn retry_after_is_in_body_and_rounded_up_in_header() {
        let error = Error::new(Code::RateLimited, "slow down")
            .with_retry_after(Duration::from_millis(1_200));
        let (response, body) = read(error.into()).await;
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "2");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(
            (&body["retry_after_ms"], &body["code"]),
            (&1_200.into(), &"rate_limited".into())
        );
    }

    #[tokio::test]
    async fn http_problems_have_status_and_phrase() {
        let (response, body) = read(Problem::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no")).await;
        assert_eq!(response.status(), 415);
        assert!(response.headers().get("retry-after").is_none());
        assert_eq!(
            (&body["type"], &body["title"]),
            (&"about:blank".into(), &"Unsupported Media Type".into())
        );
        assert_eq!(
            (&body["status"], &body["code"]),
            (&415.into(), &"invalid_input".into())
        );
    }

    #[tokio::test]
    async fn every_code_has_an_http_answer_of_its_own_status() {
        for code in Code::ALL {
            let (response, body) = read(Problem::new(*code, "x")).await;
            assert_eq!(response.status().as_u16(), code.http_status());
            assert_eq!(body["status"], code.http_status());
        }
    }
}
