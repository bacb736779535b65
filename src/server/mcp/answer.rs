//! Results of tools as JSON, written here for all MCP transports.
//!
//! The output of a pack is copied, never parsed.

use helmdeck_core::error::Retry;
use helmdeck_core::{ArtifactRef, Code, Error, Outcome, write_json_string};
use helmdeck_memory::DeletePosition;
use serde::Serialize;

use super::names::Names;
use super::uri;
use crate::problem::with_request_id;

/// Key in `_meta` for the cache: the directive of a request, and the cache status of a result.
pub(crate) const CACHE: &str = "helmdeck/cache";

/// Key in `_meta` of a request that must see what an earlier result wrote.
pub(crate) const AFTER: &str = "helmdeck/after";

#[derive(Serialize)]
struct Link<'a> {
    r#type: &'static str,
    uri: String,
    name: &'a str,
    #[serde(rename = "mimeType")]
    media_type: &'a str,
    size: u64,
}

/// Writes the result of a successful call: text, `structuredContent`, and links to its files.
///
/// `structuredContent` is present if the output is an object. `typed` says whether results name
/// their type (since revision 2026-07-28). The cache status is present only if both gates are open;
/// otherwise there is no trace of the cache. `position` is that after what the pack wrote.
pub(crate) fn write_outcome(
    outcome: &Outcome,
    typed: bool,
    position: Option<&DeletePosition>,
    out: &mut Vec<u8>,
) {
    let output = outcome.output.bytes();
    out.reserve(output.len() * 5 / 2 + 256);
    begin(typed, outcome.output.as_str(), out);
    for artifact in outcome.artifacts.iter() {
        out.push(b',');
        write(&link(artifact), out);
    }
    out.push(b']');
    if output.trim_ascii_start().first() == Some(&b'{') {
        out.extend_from_slice(b",\"structuredContent\":");
        out.extend_from_slice(output);
    }
    out.extend_from_slice(b",\"isError\":false");
    if outcome.cache.is_some()
        || outcome.session_id.is_some()
        || position.is_some()
        || outcome.pending
    {
        out.extend_from_slice(b",\"_meta\":{");
        let start = out.len();
        let begin = |name: &str, out: &mut Vec<u8>| {
            if out.len() > start {
                out.push(b',');
            }
            write(name, out);
            out.push(b':');
        };
        if let Some(cache) = &outcome.cache {
            begin(CACHE, out);
            cache.write_json(out);
        }
        if let Some(session) = &outcome.session_id {
            begin("helmdeck/session", out);
            write(session.as_ref(), out);
        }
        if outcome.pending {
            begin("helmdeck/pending", out);
            write(&true, out);
        }
        if let Some(position) = position {
            begin("helmdeck/position", out);
            write(&position.to_string(), out);
        }
        out.push(b'}');
    }
    out.push(b'}');
}

/// Writes the result of a failed call: a text for the agent, and the problem (RFC 9457) in `_meta`.
///
/// It has no `structuredContent`, which would have to match the pack's output schema.
pub(crate) fn write_failure(error: &Error, typed: bool, names: &Names, out: &mut Vec<u8>) {
    begin(typed, &names.in_text(&advice(error)), out);
    out.extend_from_slice(b"],\"isError\":true,\"_meta\":{\"helmdeck/problem\":");
    write(&with_request_id(error), out);
    out.extend_from_slice(b"}}");
}

fn begin(typed: bool, text: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    if typed {
        out.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
    write_json_string(text, out);
    out.push(b'}');
}

/// The value is plain data, and writing to memory cannot fail.
pub(crate) fn write<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, value);
}

fn link(artifact: &ArtifactRef) -> Link<'_> {
    Link {
        r#type: "resource_link",
        uri: uri::artifact(&artifact.key),
        name: &artifact.name,
        media_type: &artifact.media_type,
        size: artifact.size,
    }
}

/// Returns an error as text: what failed, where, and what to do.
pub(crate) fn advice(error: &Error) -> String {
    let mut text = error.to_string();
    let what_to_do = match (error.code(), error.retry_after()) {
        (_, Some(after)) => format!("Try again in {} ms.", after.as_millis()),
        _ if error.is_for_operator() => {
            "Only the operator of helmdeck can change that; do not repeat the call, and tell your user.".to_owned()
        }
        (Code::InvalidInput | Code::TooLarge, None) => "Change the arguments as said, and call again.".to_owned(),
        (Code::CredentialInvalid, None) => "The operator has to set or renew the credential.".to_owned(),
        (code, None) if code.retry() == Retry::Later => "The same call may succeed later.".to_owned(),
        _ => return text,
    };
    text.push_str(". ");
    text.push_str(&what_to_do);
    text
}
