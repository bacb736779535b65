//! Reading one's own writes at another replica: the headers `Helmdeck-Position` and
//! `Helmdeck-After`.
//!
//! An answer to a write names a position in the deletes of the store. A request that sends it gets
//! no answer that these deletes removed, whichever replica it reaches. Without the header nothing
//! is asked of the store.

use helmdeck_core::{Code, Error, Result};
use helmdeck_engine::Engine;
use helmdeck_memory::DeletePosition;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Header of an answer to a write.
pub(crate) const POSITION: HeaderName = HeaderName::from_static("helmdeck-position");

/// Header of a request that must see what an answer with [`POSITION`] wrote.
pub(crate) const AFTER: HeaderName = HeaderName::from_static("helmdeck-after");

/// This replica could not catch up with the position of the request. In the extensions of a
/// request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behind;

/// Returns the position that a request names.
///
/// # Errors
/// `invalid_input` if the header is there twice, or is not the text of a position.
pub(crate) fn asked(headers: &HeaderMap) -> Result<Option<DeletePosition>> {
    let mut values = headers.get_all(AFTER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(wrong("Helmdeck-After", "it is there twice"));
    }
    parse("Helmdeck-After", value.to_str().unwrap_or_default()).map(Some)
}

/// Reads the text of a position; `name` is where it came from.
///
/// # Errors
/// `invalid_input`.
pub(crate) fn parse(name: &str, text: &str) -> Result<DeletePosition> {
    text.parse()
        .map_err(|error: helmdeck_memory::BadPosition| wrong(name, &error.to_string()))
}

fn wrong(name: &str, why: &str) -> Error {
    Error::new(
        Code::InvalidInput,
        format!("{name} is not a position: {why}"),
    )
}

/// Catches up with a position. Returns whether this replica is still behind it.
pub(crate) async fn is_behind(engine: &Engine, position: &DeletePosition) -> bool {
    match engine.memory() {
        Some(memory) => !memory.catch_up(position).await,
        None => false,
    }
}

/// Returns the position after the writes of this process, as a header.
pub(crate) fn header(engine: &Engine) -> Option<HeaderValue> {
    let position = engine.memory()?.position()?;
    HeaderValue::try_from(position.to_string()).ok()
}

/// Says whether a route writes to memory: its answers have a position. The routes of packs decide
/// for themselves.
pub(crate) fn writes(method: &Method, path: &str) -> bool {
    let is_memory = ["/api/v1/memory/", "/api/v1/conversations/"]
        .iter()
        .any(|prefix| path.starts_with(prefix));
    is_memory && (*method == Method::POST || *method == Method::DELETE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_one_position() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AFTER, value.parse().unwrap());
            }
            asked(&headers)
        };
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(
            read(&["p3-1-1-5-7-00112233445566778899aabbccddeeff"])
                .unwrap()
                .unwrap()
                .to_string(),
            "p3-1-1-5-7-00112233445566778899aabbccddeeff"
        );
        let long = "p3-5-7".repeat(100);
        for (wrong, why) in [
            (&["p1-5", "p1-5"][..], "twice"),
            (&["7"], "made it"),
            (&[&long], "longer than 512"),
        ] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.code(), Code::InvalidInput);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn writes_are_told_from_reads() {
        assert!(writes(&Method::POST, "/api/v1/memory/purge"));
        assert!(writes(&Method::DELETE, "/api/v1/conversations/s"));
        assert!(!writes(&Method::GET, "/api/v1/conversations/s/context"));
        assert!(!writes(&Method::POST, "/api/v1/tokens"));
    }
}
