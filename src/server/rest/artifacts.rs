//! The download of a file that a pack wrote, to its owner only.
//!
//! What a pack wrote is never rendered on this origin: a page among the artifacts could otherwise call every pack.

use std::sync::Arc;

use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Code, Permission};
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::{NOSNIFF, in_time};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;

/// Downloads a file of a run by the `key` in the outcome's `artifacts`.
///
/// A file of somebody else is not found, as one that never was; an administrator gets any.
#[utoipa::path(get, path = "/api/v1/artifacts/{key}", tag = "artifacts", operation_id = "download_artifact",
    params(("key" = String, Path, description = "`<pack>/<run>/<name>`; its slashes are written as they are")),
    responses(
        (status = 200, description = "The file, with the media type that its pack gave it", content_type = "*/*", body = String),
        (status = 304, description = "The file of `If-None-Match` is still that"),
        (status = 404, description = "No such file", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn download(
    State(app): State<Arc<App>>,
    By(caller): By,
    path: RawPathParams,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let key = path.iter().next().map(|(_, key)| key).unwrap_or_default();
    if caller.identity.is_anonymous() {
        // All callers without a token are one, and what one of them made is not for the others.
        return Err(Problem::new(Code::Unauthenticated, "an artifact is for whom a token proves to be its owner"));
    }
    let found = if caller.permissions.allow(&Permission::Admin) {
        in_time(&app, app.engine.artifact_of_anyone(key)).await?
    } else {
        in_time(&app, app.engine.artifact(&caller.identity, key)).await?
    };
    let (artifact, bytes) = found?;

    let etag = header(format!("\"{}\"", artifact.sha256))?;
    let mut response = if knows(&headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, media_type(&artifact.media_type))], bytes).into_response()
    };
    let answer = response.headers_mut();
    answer.insert(ETAG, etag);
    // A run's file may be replaced while the run goes on, so a copy has to be asked about each time.
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    answer.insert(CONTENT_DISPOSITION, header(disposition(&artifact.name))?);
    answer.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    answer.insert(NOSNIFF.0, NOSNIFF.1);
    Ok(response)
}

fn header(text: String) -> Result<HeaderValue, Problem> {
    HeaderValue::try_from(text).map_err(|_| Problem::new(Code::Internal, "the artifact's name cannot be written"))
}

fn media_type(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

fn knows(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == "*" || tag == etag)
    })
}

/// Writes the name twice, as RFC 6266 advises: in ASCII for old clients, and in full (RFC 8187).
fn disposition(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let ascii: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let mut text = format!("attachment; filename=\"{ascii}\"");
    if ascii != name {
        text.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            if plain(char::from(byte)) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_its_header() {
        assert_eq!(disposition("map-1.txt"), "attachment; filename=\"map-1.txt\"");
        assert_eq!(disposition("a\"; x"), "attachment; filename=\"a___x\"; filename*=UTF-8''a%22%3B%20x");
        assert_eq!(disposition("é\n"), "attachment; filename=\"__\"; filename*=UTF-8''%C3%A9%0A");
    }

    #[test]
    fn etags_are_compared_one_by_one() {
        let etag = HeaderValue::from_static("\"ab\"");
        let known = |text: &str| knows(&HeaderMap::from_iter([(IF_NONE_MATCH, text.parse().unwrap())]), &etag);
        assert!(known("\"ab\"") && known("\"x\", W/\"ab\"") && known("*"));
        assert!(!known("\"abc\"") && !known("ab"));
        assert!(!knows(&HeaderMap::new(), &etag));
    }
}
