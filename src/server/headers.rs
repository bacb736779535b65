//! Header values that several answers share.

use http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};

/// The media type of JSON answers.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The media type of problem details (RFC 9457).
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The media type of server-sent events.
pub(crate) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// `Cache-Control` of answers that are for one caller at one moment.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Tells browsers not to guess another media type (Fetch standard, section 3.6).
pub(crate) const NOSNIFF: (HeaderName, HeaderValue) =
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// `WWW-Authenticate` of a request without a token (RFC 6750, section 3).
pub(crate) const ASK: HeaderValue = HeaderValue::from_static("Bearer realm=\"helmdeck\"");
