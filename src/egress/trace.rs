//! Sends requests within the current trace: its context in W3C headers, and a client span if spans
//! are recorded.
//!
//! Spans never hold a path or a query, which may contain parts of an input or secrets.

use helmdeck_core::trace::SpanKind;
use helmdeck_core::{Correlation, Span, Trace};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use reqwest::{RequestBuilder, Response};
use url::Url;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Request in the current trace. Nothing is done outside of a trace.
#[derive(Debug)]
pub struct Outgoing {
    trace: Option<Trace>,
    span: Option<Span>,
}

impl Outgoing {
    /// Begins a request. Its span ends with [`Outgoing::answered`] or [`Outgoing::failed`]; if it
    /// is dropped, without a status.
    #[must_use]
    pub fn begin(method: &Method, url: &Url) -> Self {
        let mut correlation = Correlation::current();
        let mut span =
            correlation.begin_span(|| method.as_str().to_owned().into(), SpanKind::Client);
        if let Some(span) = &mut span {
            span.set("http.request.method", method.as_str().to_owned());
            span.set("url.scheme", url.scheme().to_owned());
            span.set(
                "server.address",
                url.host_str().unwrap_or_default().to_owned(),
            );
            if let Some(port) = url.port_or_known_default() {
                span.set("server.port", port);
            }
        }
        Self {
            trace: correlation.trace,
            span,
        }
    }

    /// Adds the trace context to the headers, unless they have one.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        let Some(trace) = &self.trace else { return };
        if headers.contains_key(TRACEPARENT) {
            return;
        }
        if let Ok(parent) = HeaderValue::try_from(trace.context().to_string()) {
            headers.insert(TRACEPARENT, parent);
        }
        if let Some(state) = trace
            .state()
            .and_then(|state| HeaderValue::from_str(state).ok())
        {
            headers.insert(TRACESTATE, state);
        }
    }

    /// Ends it with the status of the answer.
    pub fn answered(self, status: StatusCode) {
        let Some(mut span) = self.span else { return };
        span.set("http.response.status_code", status.as_u16());
        if status.is_client_error() || status.is_server_error() {
            span.fail(status.as_str().to_owned(), "");
        }
    }

    /// Ends it without an answer. `kind` is one word.
    pub fn failed(self, kind: &'static str) {
        if let Some(mut span) = self.span {
            span.fail(kind, "");
        }
    }
}

/// Sends a request within the current trace.
///
/// # Errors
/// As [`RequestBuilder::send`].
pub async fn send(request: RequestBuilder) -> Result<Response, reqwest::Error> {
    if Correlation::with_current(|current| current.trace.is_none()) {
        return request.send().await;
    }
    let (client, request) = request.build_split();
    let mut request = request?;
    let outgoing = Outgoing::begin(request.method(), request.url());
    outgoing.add_to(request.headers_mut());
    let answer = client.execute(request).await;
    match &answer {
        Ok(response) => outgoing.answered(response.status()),
        Err(error) if error.is_timeout() => outgoing.failed("timeout"),
        Err(error) if error.is_connect() => outgoing.failed("connect"),
        Err(_) => outgoing.failed("_OTHER"),
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(trace: Option<Trace>, mut headers: HeaderMap) -> HeaderMap {
        Outgoing { trace, span: None }.add_to(&mut headers);
        headers
    }

    #[test]
    fn headers_carry_the_trace_once() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::received(parent, Some("rojo=1"));
        assert!(added(None, HeaderMap::new()).is_empty());
        let headers = added(trace.clone(), HeaderMap::new());
        assert_eq!(
            (&headers[TRACEPARENT], &headers[TRACESTATE]),
            (&parent.parse().unwrap(), &"rojo=1".parse().unwrap())
        );
        let own = HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_static("own"))]);
        assert_eq!(added(trace, own.clone()), own);
    }
}
