//! Routes of artifacts: list, download and delete, each for the owner and administrators only.
//!
//! An artifact is never rendered on this origin: an HTML page among them could otherwise call every
//! pack.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use helmdeck_core::{ArtifactRef, Code, PackName, Permission};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::{Problems, json};
use super::request::{Params, PathValues, page_size};
use super::state::EngineState;
use crate::access::{By, need, need_token, reach};
use crate::app::App;
use crate::headers::NOSNIFF;
use crate::problem::Problem;

/// Name of an artifact in refusals.
const ARTIFACT: &str = "an artifact";
/// The digest of the whole file (RFC 9530).
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(download, delete))
}

/// Which artifacts to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ArtifactQuery {
    /// Only artifacts of this pack
    #[param(value_type = Option<String>)]
    pack: Option<PackName>,
    /// Those of everybody, owner by owner; needs the scope `admin`
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    all: bool,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// Lists the caller's artifacts that have not expired, newest first, in pages.
///
/// A page may hold fewer artifacts than asked for, even none, and still have a `next`.
#[utoipa::path(get, path = "/api/v1/artifacts", tag = "artifacts", operation_id = "list_artifacts",
    params(ArtifactQuery),
    responses((status = 200, description = "The artifacts", body = ref("#/components/schemas/ArtifactList")), Problems))]
async fn list(
    State(state): State<EngineState>,
    By(caller): By,
    filter: Params<ArtifactQuery>,
) -> Result<Response, Problem> {
    let filter = filter.read()?;
    let limit = page_size(filter.limit)?;
    if filter.all {
        need(&caller, &Permission::Admin)?;
    }
    let owner = Some(need_token(&caller, ARTIFACT)?).filter(|_| !filter.all);
    let listing =
        state
            .engine
            .artifacts(owner, filter.pack.as_ref(), limit, filter.after.as_deref());
    json(&state.limits.in_time(listing).await??)
}

/// Downloads an artifact by the `key` in the outcome's `artifacts`.
///
/// Only the owner and administrators can read it; for everyone else it is not found. If the file
/// turns out to be damaged while it is sent, the connection ends before its last byte.
#[utoipa::path(get, path = "/api/v1/artifacts/{*key}", tag = "artifacts", operation_id = "download_artifact",
    params(("key" = String, Path, description = "`<pack>/<run>/<name>`; slashes are not encoded")),
    responses(
        (status = 200, description = "The file, with the media type that its pack gave it", content_type = "*/*", body = String),
        (status = 304, description = "The file still is that of `If-None-Match`"),
        (status = 404, description = "Artifact not found"),
        (status = 502, description = "The file is damaged, or its storage does not answer"),
    ))]
async fn download(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let opening = state
        .engine
        .open_artifact(reach(&caller, ARTIFACT)?, path.value("key"));
    let (artifact, pieces) = state.limits.in_time(opening).await??;
    let etag = header(format!("\"{}\"", artifact.sha256))?;
    let mut response = if knows(&headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut whole = Response::new(Body::from_stream(pieces));
        whole
            .headers_mut()
            .insert(CONTENT_TYPE, media_type(&artifact.media_type));
        whole
            .headers_mut()
            .insert(CONTENT_LENGTH, artifact.size.into());
        // A part cannot be verified, so only the whole file is sent.
        whole
            .headers_mut()
            .insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
        whole
    };
    let answer = response.headers_mut();
    answer.insert(ETAG, etag);
    answer.insert(REPR_DIGEST, digest(&artifact)?);
    // A run can replace its files while it continues, so caches must revalidate each time.
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    answer.insert(CONTENT_DISPOSITION, header(disposition(&artifact.name))?);
    answer.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    answer.insert(NOSNIFF.0, NOSNIFF.1);
    Ok(response)
}

/// Deletes an artifact before it expires.
///
/// Only the owner and administrators can delete it; for everyone else it is not found.
#[utoipa::path(delete, path = "/api/v1/artifacts/{*key}", tag = "artifacts", operation_id = "delete_artifact",
    params(("key" = String, Path, description = "`<pack>/<run>/<name>`; slashes are not encoded")),
    responses(
        (status = 204, description = "It is deleted"),
        (status = 404, description = "Artifact not found"),
        (status = 502, description = "Its storage does not answer"),
    ))]
async fn delete(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let deleting = state
        .engine
        .delete_artifact(reach(&caller, ARTIFACT)?, path.value("key"));
    state.limits.in_time(deleting).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn digest(artifact: &ArtifactRef) -> Result<HeaderValue, Problem> {
    let digits = artifact
        .sha256
        .as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).ok());
    let bytes: Option<Vec<u8>> = digits
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect();
    let text = base64::engine::general_purpose::STANDARD.encode(bytes.unwrap_or_default());
    header(format!("sha-256=:{text}:"))
}

fn header(text: String) -> Result<HeaderValue, Problem> {
    HeaderValue::try_from(text)
        .map_err(|_| Problem::new(Code::Internal, "the artifact's name cannot be written"))
}

fn media_type(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

fn knows(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| {
            value
                .split(',')
                .map(|tag| tag.trim().trim_start_matches("W/"))
                .any(|tag| tag == "*" || tag == etag)
        })
}

/// Writes the name twice, as RFC 6266 advises: in ASCII for old clients, and in full (RFC 8187).
pub(super) fn disposition(name: &str) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let ascii: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
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
        assert_eq!(
            disposition("map-1.txt"),
            "attachment; filename=\"map-1.txt\""
        );
        assert_eq!(
            disposition("a\"; x"),
            "attachment; filename=\"a___x\"; filename*=UTF-8''a%22%3B%20x"
        );
        assert_eq!(
            disposition("é\n"),
            "attachment; filename=\"__\"; filename*=UTF-8''%C3%A9%0A"
        );
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
        assert_eq!(
            digest(&artifact).unwrap(),
            "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
        );
    }

    #[test]
    fn etags_are_compared_one_by_one() {
        let etag = HeaderValue::from_static("\"ab\"");
        let known = |text: &str| {
            knows(
                &HeaderMap::from_iter([(IF_NONE_MATCH, text.parse().unwrap())]),
                &etag,
            )
        };
        assert!(known("\"ab\"") && known("\"x\", W/\"ab\"") && known("*"));
        assert!(!known("\"abc\"") && !known("ab"));
        assert!(!knows(&HeaderMap::new(), &etag));
    }
}
