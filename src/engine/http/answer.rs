//! Interpretation of an HTTP response: its body as JSON, its validator, and errors of other
//! statuses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::manifest::http::{HttpOutput, HttpSpec};
use helmdeck_core::upstream::retry_after;
use helmdeck_core::{Caching, Clock, Code, Error, Json, Quota, Result, Secret, SystemClock, json};
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, SET_COOKIE,
};
use reqwest::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::exchange::{is_redirect, trouble};
use helmdeck_redact::quote::{self, TextEnd};

/// Limit of a retry time.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// How much of the body of a refused request is read, in bytes.
///
/// It is more than is quoted, so that no part of a secret is left at the cut.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Limit of a validator, in bytes.
const MAX_VALIDATOR_BYTES: usize = 1 << 10;

/// Validator of an answer, by which it can be revalidated (RFC 9110 section 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Validator {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
}

impl Validator {
    /// Returns the validator of an answer, `None` if it has none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| {
            let text = headers.get(name)?.to_str().ok()?;
            (!text.is_empty() && text.len() <= MAX_VALIDATOR_BYTES).then(|| text.to_owned())
        };
        let found = Self {
            etag: text(ETAG),
            last_modified: text(LAST_MODIFIED),
        };
        (found != Self::default()).then_some(found)
    }

    /// Parses the text of [`Validator::text`].
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text)
            .ok()
            .filter(|found| *found != Self::default())
    }

    /// Returns it as text.
    pub(super) fn text(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Adds the headers of a conditional request.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        let pairs = [
            (IF_NONE_MATCH, &self.etag),
            (IF_MODIFIED_SINCE, &self.last_modified),
        ];
        for (name, value) in pairs {
            if let Some(value) = value
                .as_deref()
                .and_then(|value| HeaderValue::from_str(value).ok())
            {
                headers.insert(name, value);
            }
        }
    }
}

/// Reads the output of an answer.
///
/// # Errors
/// `invalid_output` if it is too long, compressed, not the JSON that it says it is, or neither JSON
/// nor text.
pub(super) async fn read(response: Response, headers: &HeaderMap, spec: &HttpSpec) -> Result<Json> {
    let status = response.status();
    let host = spec.url.host();
    if let Some(encoding) = headers
        .get(CONTENT_ENCODING)
        .filter(|encoding| !encoding.is_empty())
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(Error::new(
            Code::InvalidOutput,
            format!("{host} sent a compressed body that it was not asked for"),
        ));
    }
    let bytes = collect(response, spec).await?;
    let body = body(bytes, headers, host)?;
    match spec.output {
        HttpOutput::Body => Ok(body),
        HttpOutput::Full => full(status, headers, &body),
    }
}

/// Reads the body up to the limit.
async fn collect(mut response: Response, spec: &HttpSpec) -> Result<Bytes> {
    let (host, limit) = (spec.url.host(), spec.max_response_bytes);
    let too_long = || {
        Error::new(
            Code::InvalidOutput,
            format!("the answer of {host} is over {limit} bytes"),
        )
    };
    if response
        .content_length()
        .is_some_and(|length| length > limit)
    {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| trouble(error, host, spec.method))?
    {
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(too_long());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

/// Returns the body of an answer as JSON.
///
/// JSON is returned byte for byte if the content type says that it is JSON; text becomes a JSON
/// string, an empty body `null`.
fn body(bytes: Bytes, headers: &HeaderMap, host: &str) -> Result<Json> {
    if bytes.trim_ascii().is_empty() {
        return Ok(Json::from_trusted(Bytes::from_static(b"null")));
    }
    if is_json(headers) {
        return json::check_strict(&bytes)
            .and_then(|()| Json::parse(bytes))
            .map_err(|error| {
                Error::new(
                    Code::InvalidOutput,
                    format!("the answer of {host} cannot be used as JSON: {error}"),
                )
            });
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Json::from(serde_json::Value::from(text))),
        Err(_) => Err(Error::new(
            Code::InvalidOutput,
            format!("the answer of {host} is neither JSON nor UTF-8 text"),
        )),
    }
}

/// Returns whether the media type is JSON (RFC 8259) or based on it (RFC 6839).
fn is_json(headers: &HeaderMap) -> bool {
    let media_type = media_type(headers);
    media_type == "application/json" || media_type.ends_with("+json")
}

/// Returns the media type in lower case, without its parameters.
fn media_type(headers: &HeaderMap) -> String {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    text.split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

#[derive(Serialize)]
struct Full<'a> {
    status: u16,
    headers: BTreeMap<&'a str, String>,
    body: &'a RawValue,
}

/// Writes `{status, headers, body}`.
///
/// A repeated header becomes one list (RFC 9110 section 5.3). Cookies are left out, because they
/// represent a login.
fn full(status: StatusCode, headers: &HeaderMap, body: &Json) -> Result<Json> {
    let wrong =
        |error| Error::new(Code::Internal, "the answer cannot be written").with_source(error);
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| *name != SET_COOKIE) {
        let value = String::from_utf8_lossy(value.as_bytes());
        texts
            .entry(name.as_str())
            .and_modify(|known| {
                known.push_str(", ");
                known.push_str(&value);
            })
            .or_insert_with(|| value.clone().into_owned());
    }
    let body = serde_json::from_str(body.as_str()).map_err(wrong)?;
    Json::from_serialize(&Full {
        status: status.as_u16(),
        headers: texts,
        body,
    })
    .map_err(wrong)
}

/// Returns the error for a status, with a quotation of the server's message.
///
/// The message is the beginning of the body, if that is JSON or plain text.
pub(super) async fn refusal(
    response: Response,
    with_credential: bool,
    secrets: &[Secret],
) -> Error {
    let error = classify(&response, with_credential);
    let readable = !is_redirect(response.status()) && is_readable(response.headers());
    let text = if readable {
        head(response).await
    } else {
        Vec::new()
    };
    match quote::foreign(&text, secrets, TextEnd::Head) {
        Some(said) => {
            let message = format!("{}; the server says: {said}", error.message());
            error.with_message(message)
        }
        None => error,
    }
}

/// Reads the first [`MAX_ERROR_BYTES`] of a body; a connection that breaks counts as its end.
async fn head(mut response: Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let (true, Ok(Some(chunk))) = (bytes.len() < MAX_ERROR_BYTES, response.chunk().await) {
        let room = MAX_ERROR_BYTES.saturating_sub(bytes.len());
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    bytes
}

/// Returns whether a body is text that a caller can use: JSON or plain text, not compressed.
///
/// A page is for browsers.
fn is_readable(headers: &HeaderMap) -> bool {
    !headers.contains_key(CONTENT_ENCODING)
        && (is_json(headers) || media_type(headers) == "text/plain")
}

/// Returns the error code of a status.
fn classify(response: &Response, with_credential: bool) -> Error {
    let (status, host) = (
        response.status(),
        response.url().host_str().unwrap_or("the host"),
    );
    let headers = response.headers();
    let used_up = || {
        quota(headers)
            .filter(|quota| quota.remaining == 0)
            .map(|quota| quota.reset)
    };
    let wait = retry_after(|name| headers.get(name)?.to_str().ok())
        .or_else(used_up)
        .map(|wait| wait.clamp(Duration::from_secs(1), MAX_WAIT));
    let said = status.as_u16();
    let (code, message) = match said {
        401 if with_credential => (
            Code::CredentialInvalid,
            format!("{host} rejected the credential (status 401)"),
        ),
        401 => (
            Code::CredentialInvalid,
            format!("{host} requires a credential (status 401)"),
        ),
        403 | 451 => (
            Code::Forbidden,
            format!("{host} does not allow this (status {said})"),
        ),
        404 | 410 => (
            Code::NotFound,
            format!("{host} found nothing at this address (status {said})"),
        ),
        409 | 412 => (
            Code::Conflict,
            format!("{host} reports a conflict (status {said})"),
        ),
        413 => (
            Code::TooLarge,
            format!("{host} rejected the request as too large (status 413)"),
        ),
        400 | 414 | 422 => (
            Code::InvalidInput,
            format!("{host} rejected the input (status {said})"),
        ),
        429 => (
            Code::RateLimited,
            format!("the rate limit of {host} is used up"),
        ),
        408 | 504 => (
            Code::Timeout,
            format!("{host} did not answer in time (status {said})"),
        ),
        _ if is_redirect(status) => (
            Code::HandlerFailed,
            format!("{host} redirects, and this is not followed"),
        ),
        _ => (
            Code::HandlerFailed,
            format!("{host} answered with status {said}"),
        ),
    };
    let error = match wait {
        Some(wait)
            if matches!(
                code,
                Code::RateLimited | Code::HandlerFailed | Code::Timeout
            ) =>
        {
            Error::new(code, message).with_retry_after(wait)
        }
        _ => Error::new(code, message),
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        error.of_upstream()
    } else {
        error
    }
}

/// Returns what the answer says about storing it.
pub(super) fn caching(headers: &HeaderMap) -> Caching {
    // A value that is no text gives no permission.
    Caching::read(|name| {
        headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap_or("no-store"))
    })
}

/// Returns what is left of the quota, if the answer says so.
pub(super) fn quota(headers: &HeaderMap) -> Option<Quota> {
    Quota::read(
        |name| headers.get(name)?.to_str().ok(),
        SystemClock::default().now(),
    )
}
