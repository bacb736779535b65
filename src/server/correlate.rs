//! Request ids and trace contexts of HTTP requests, and the span of each.
//!
//! Without a tracer, a caller's trace context is passed on and no span is made.

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use helmdeck_core::trace::SpanKind;
use helmdeck_core::{Correlation, RequestId, Span, Trace, Tracer};
use helmdeck_server_config::host_name;
use http::header::{HOST, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};

/// Id of a request, in requests and in every answer.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// W3C trace context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Limit of a user agent in a span, in bytes.
const MAX_AGENT_BYTES: usize = 256;

/// Returns the id of a request and the header of its answer: the caller's if it sent exactly one
/// well-formed id, else a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> (RequestId, HeaderValue) {
    let mut values = headers.get_all(X_REQUEST_ID).iter();
    if let (Some(value), None) = (values.next(), values.next())
        && let Some(id) = RequestId::given(value.as_bytes())
    {
        return (id, value.clone());
    }
    let id = RequestId::random();
    let shown = id
        .with_text(HeaderValue::from_str)
        .unwrap_or(HeaderValue::from_static("-"));
    (id, shown)
}

/// Returns the trace that a caller named, `None` if it named none or more than one.
pub(crate) fn trace(headers: &HeaderMap) -> Option<Trace> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else {
        return None;
    };
    // Several fields are one list (section 3.3.1).
    let states: Vec<&str> = headers
        .get_all(TRACESTATE)
        .iter()
        .filter_map(|state| state.to_str().ok())
        .collect();
    Trace::received(parent.to_str().ok()?, Some(&states.join(",")))
}

/// Starts the span of an HTTP request and makes it the parent of further ones; names are those of
/// OpenTelemetry's semantic conventions.
pub(crate) fn begin(
    tracer: &Tracer,
    request: &Request<Body>,
    correlation: &mut Correlation,
) -> Option<Span> {
    let method = known(request.method());
    let (trace, span) = tracer.start(
        correlation.trace.as_ref(),
        || method.into(),
        SpanKind::Server,
    );
    correlation.trace = Some(trace);
    let mut span = span?;
    span.set("http.request.method", method);
    span.set("url.path", request.uri().path().to_owned());
    span.set("url.scheme", "http");
    span.set("network.protocol.name", "http");
    let headers = request.headers();
    if let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok())
        && let Some(name) = host_name(host)
    {
        span.set("server.address", name.to_owned());
        if let Some(port) = host
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok())
        {
            span.set("server.port", port);
        }
    }
    if let Some(agent) = headers
        .get(USER_AGENT)
        .and_then(|agent| agent.to_str().ok())
    {
        span.set(
            "user_agent.original",
            agent[..agent.floor_char_boundary(MAX_AGENT_BYTES)].to_owned(),
        );
    }
    if let Some(id) = &correlation.request_id {
        span.set("helmdeck.request_id", id.to_string());
    }
    Some(span)
}

/// Completes the span with what the answer says. It ends when this returns, also if the answer is a
/// stream.
pub(crate) fn end(mut span: Span, method: &Method, path: &str, response: &Response) {
    let status = response.status();
    span.set("http.response.status_code", status.as_u16());
    let matched = response.extensions().get::<Route>();
    let route = if path == crate::entry::MCP {
        Some(path)
    } else {
        matched.map(|Route(route)| route.as_str())
    };
    if let Some(route) = route {
        span.set("http.route", route.to_owned());
        span.rename(format!("{} {route}", known(method)));
    }
    if status.is_server_error() {
        span.fail(status.as_str().to_owned(), "");
    }
}

/// Route that answered, for the span around the router.
#[derive(Clone)]
struct Route(MatchedPath);

/// Middleware that notes the route in the answer. Only a traced server has it.
pub(crate) async fn note_route(request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(matched) = matched {
        response.extensions_mut().insert(Route(matched));
    }
    response
}

/// Returns a method of the standards; others are `_OTHER`, so that callers cannot make names.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn well_formed_ids_of_callers_are_taken_over() {
        let (id, shown) = request_id(&headers(&[("x-request-id", "order-7")]));
        assert_eq!(
            (id.to_string().as_str(), shown.to_str().unwrap()),
            ("order-7", "order-7")
        );
        let long = "x".repeat(129);
        for wrong in [
            &[][..],
            &[("x-request-id", "a b")],
            &[("x-request-id", long.as_str())],
        ] {
            let (id, shown) = request_id(&headers(wrong));
            assert!(
                !id.is_given() && shown.len() == 32 && shown == id.to_string().as_str(),
                "{wrong:?}"
            );
        }
        assert!(
            !request_id(&headers(&[("x-request-id", "a"), ("x-request-id", "b")]))
                .0
                .is_given()
        );
    }

    #[test]
    fn one_traceparent_names_the_trace() {
        let parent = (
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        );
        let named = trace(&headers(&[
            parent,
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ]))
        .unwrap();
        assert_eq!(
            (named.context().to_string().as_str(), named.state()),
            (parent.1, Some("a=1,b=2"))
        );
        assert!(trace(&headers(&[parent, parent])).is_none());
        assert!(trace(&headers(&[("tracestate", "a=1")])).is_none());
    }
}
