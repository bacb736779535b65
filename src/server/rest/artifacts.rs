//! The files that packs wrote: listing, downloading and deleting them, each by its owner only, and by an administrator.
//!
//! What a pack wrote is never rendered on this origin: a page among the artifacts could otherwise call every pack.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use helmdeck_core::{ArtifactRef, Caller, Code, Identity, PackName, Permission};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, IF_NONE_MATCH,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{NOSNIFF, in_time, json};
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;
use crate::rest::path::PathValues;

/// The most files of one page.
const MAX_FILES: usize = 1000;
/// The digest of the whole file (RFC 9530).
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// Which files are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    pack: Option<PackName>,
    #[serde(default)]
    all: bool,
    limit: Option<usize>,
    after: Option<String>,
}

/// Lists the caller's files that have not ended, newest first, in pages.
///
/// A page may hold fewer files than asked for, even none, and still have a `next`.
#[utoipa::path(get, path = "/api/v1/artifacts", tag = "artifacts", operation_id = "list_artifacts",
    params(
        ("pack" = Option<String>, Query, description = "Only files of this pack"),
        ("all" = Option<bool>, Query, description = "Those of everybody, owner by owner; for an administrator"),
        ("limit" = Option<u32>, Query, description = "1 to 1000; 100 unless given"),
        ("after" = Option<String>, Query, description = "The `next` of the page before"),
    ),
    responses(
        (status = 200, description = "The files", body = ref("#/components/schemas/ArtifactList")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    By(caller): By,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(filter) = filter.map_err(|rejection| Problem::new(Code::InvalidInput, rejection.body_text()))?;
    let limit = filter.limit.unwrap_or(100);
    if !(1..=MAX_FILES).contains(&limit) {
        return Err(Problem::new(Code::InvalidInput, format!("limit must be 1 to {MAX_FILES}")));
    }
    if filter.all {
        need(&caller, &Permission::Admin)?;
    }
    let owner = Some(known(&caller)?).filter(|_| !filter.all);
    let listing = app.engine.artifacts(owner, filter.pack.as_ref(), limit, filter.after.as_deref());
    json(&in_time(&app, listing).await??)
}

/// Downloads a file of a run by the `key` in the outcome's `artifacts`.
///
/// A file of somebody else is not found, as one that never was; an administrator gets any. A file that turns out to be damaged while
/// it is sent ends the connection before its last byte.
#[utoipa::path(get, path = "/api/v1/artifacts/{key}", tag = "artifacts", operation_id = "download_artifact",
    params(("key" = String, Path, description = "`<pack>/<run>/<name>`; its slashes are written as they are")),
    responses(
        (status = 200, description = "The file, with the media type that its pack gave it", content_type = "*/*", body = String),
        (status = 304, description = "The file of `If-None-Match` is still that"),
        (status = 404, description = "No such file", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
        (status = 502, description = "It is damaged, or its place does not answer", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn download(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let key = path.iter().next().map(|(_, key)| key).unwrap_or_default();
    let (artifact, pieces) = in_time(&app, app.engine.open_artifact(reach(&caller)?, key)).await??;
    let etag = header(format!("\"{}\"", artifact.sha256))?;
    let mut response = if knows(&headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut whole = Response::new(Body::from_stream(pieces));
        whole.headers_mut().insert(CONTENT_TYPE, media_type(&artifact.media_type));
        whole.headers_mut().insert(CONTENT_LENGTH, artifact.size.into());
        // A part cannot be checked, so the file is had whole or not at all.
        whole.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
        whole
    };
    let answer = response.headers_mut();
    answer.insert(ETAG, etag);
    answer.insert(REPR_DIGEST, digest(&artifact)?);
    // A run's file may be replaced while the run goes on, so a copy has to be asked about each time.
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    answer.insert(CONTENT_DISPOSITION, header(disposition(&artifact.name))?);
    answer.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    answer.insert(NOSNIFF.0, NOSNIFF.1);
    Ok(response)
}

/// Deletes a file before it ends.
///
/// A file of somebody else is not found, as one that never was; an administrator deletes any.
#[utoipa::path(delete, path = "/api/v1/artifacts/{key}", tag = "artifacts", operation_id = "delete_artifact",
    params(("key" = String, Path, description = "`<pack>/<run>/<name>`; its slashes are written as they are")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "No such file", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
        (status = 502, description = "Its place does not answer", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
) -> Result<Response, Problem> {
    let key = path.iter().next().map(|(_, key)| key).unwrap_or_default();
    in_time(&app, app.engine.delete_artifact(reach(&caller)?, key)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// All callers without a token are one, and what one of them made is not for the others.
fn known(caller: &Caller) -> Result<&Identity, Problem> {
    if caller.identity.is_anonymous() {
        return Err(Problem::new(Code::Unauthenticated, "an artifact is for whom a token proves to be its owner"));
    }
    Ok(&caller.identity)
}

/// Returns whose files a caller reaches by their keys; `None` = everybody's.
fn reach(caller: &Caller) -> Result<Option<&Identity>, Problem> {
    let own = known(caller)?;
    Ok(Some(own).filter(|_| !caller.permissions.allow(&Permission::Admin)))
}

fn digest(artifact: &ArtifactRef) -> Result<HeaderValue, Problem> {
    let digits = artifact.sha256.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes: Option<Vec<u8>> = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    let text = base64::engine::general_purpose::STANDARD.encode(bytes.unwrap_or_default());
    header(format!("sha-256=:{text}:"))
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
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let ascii: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let mut text = format!("attachment; filename=\"{ascii}\"");
    if ascii != name {
        text.push_str("; filename*=UTF-8''");
        text.extend(utf8_percent_encode(name, PLAIN));
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
    fn a_digest_is_written_as_rfc_9530_has_it() {
        let artifact = ArtifactRef {
            key: String::new(),
            name: String::new(),
            media_type: String::new(),
            size: 0,
            // SHA-256 of no bytes, and its base64 by coreutils.
            sha256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned(),
            expires_at: helmdeck_core::Timestamp::MAX,
        };
        assert_eq!(digest(&artifact).unwrap(), "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
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
