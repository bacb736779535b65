//! The REST routes of this process, as the pages use them: with the rights of their caller, and
//! without a socket.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use helmdeck_core::Caller;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use crate::json::{self, Read, Unreadable, answer};

/// Limit of an answer that a page shows, in bytes.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Client of the REST routes. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Rest(Router);

/// Answer of a route that succeeded.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

answer! {
    /// Refusal of a route: problem details (RFC 9457).
    #[derive(Debug, Clone)]
    pub(crate) struct Failure {
        pub(crate) status: u16,
        pub(crate) code: String = default,
        pub(crate) detail: String = default,
        /// Where an input violates its schema.
        pub(crate) errors: Vec<Violation> = default,
    }

    /// A part of an input that violates its schema.
    #[derive(Debug, Clone)]
    pub(crate) struct Violation {
        pub(crate) pointer: String,
        pub(crate) detail: String,
    }
}

impl Failure {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status: status.as_u16(),
            code: String::new(),
            detail: detail.into(),
            errors: Vec::new(),
        }
    }
}

impl Rest {
    pub(crate) const fn new(routes: Router) -> Self {
        Self(routes)
    }

    /// Returns the JSON of a route.
    ///
    /// # Errors
    /// The route's refusal.
    pub(crate) async fn get<T: Read>(&self, caller: &Caller, path: &str) -> Result<T, Failure> {
        read(&self.send(caller, Method::GET, path, None).await?)
    }

    /// Runs the verb of an address, and returns its output.
    ///
    /// # Errors
    /// The refusal of the verb.
    pub(crate) async fn output<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        path: &str,
    ) -> Result<T, Failure> {
        let answer = self.send(caller, Method::GET, path, None).await?;
        serde_json::from_slice(&answer.body).map_err(|error| odd(error.into()))
    }

    /// Sends a request with JSON as its body, and returns the whole answer.
    ///
    /// # Errors
    /// The route's refusal.
    pub(crate) fn send<'a>(
        &'a self,
        caller: &'a Caller,
        method: Method,
        path: &'a str,
        body: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let response = self.open(caller, method, path, body).await?;
            let (parts, body) = response.into_parts();
            let too_large = |_| {
                Failure::new(
                    StatusCode::BAD_GATEWAY,
                    "the answer is too large for a page; use the REST route",
                )
            };
            let body = Limited::new(body, MAX_ANSWER_BYTES)
                .collect()
                .await
                .map_err(too_large)?
                .to_bytes();
            if parts.status.is_success() {
                return Ok(Answer {
                    status: parts.status,
                    body,
                });
            }
            Err(json::from_slice(&body)
                .unwrap_or_else(|_| Failure::new(parts.status, "the route gave no reason")))
        })
    }

    /// Follows a route that streams events, after the event with the id `last`.
    ///
    /// # Errors
    /// The route's refusal.
    pub(crate) async fn follow(
        &self,
        caller: &Caller,
        path: &str,
        last: Option<&str>,
    ) -> Result<Response<Body>, Failure> {
        let mut request = request(caller, Method::GET, path, Body::empty())?;
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request
                .headers_mut()
                .insert(HeaderName::from_static("last-event-id"), last);
        }
        let response = self.answer(request).await;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await;
        let body = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        Err(json::from_slice(&body)
            .unwrap_or_else(|_| Failure::new(status, "the route gave no reason")))
    }

    /// Sends a request and returns the answer with its body unread.
    ///
    /// # Errors
    /// If the path cannot be part of a URL.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Failure> {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        Ok(self.answer(request(caller, method, path, body)?).await)
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

fn request(
    caller: &Caller,
    method: Method,
    path: &str,
    body: Body,
) -> Result<Request<Body>, Failure> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = path
        .parse()
        .map_err(|_| Failure::new(StatusCode::NOT_FOUND, "there is no such page"))?;
    request
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.extensions_mut().insert(caller.clone());
    Ok(request)
}

/// Reads the JSON of an answer.
///
/// # Errors
/// If it has another form than the page expects.
pub(crate) fn read<T: Read>(answer: &Answer) -> Result<T, Failure> {
    T::read(&json::parse(&answer.body).map_err(odd)?).map_err(odd)
}

#[cold]
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn odd(error: Unreadable) -> Failure {
    let detail = format!("the page cannot read what the route answered: {error}");
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

/// Percent-encodes a text as one segment of a path or one value of a query.
pub(crate) fn segment(text: &str) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Percent-encodes a path, whose slashes stay.
pub(crate) fn path(text: &str) -> String {
    text.split('/').map(segment).collect::<Vec<_>>().join("/")
}
