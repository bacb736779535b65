//! Reading of a request body, with limits of size and time that apply before it is stored.
//!
//! The body is returned unchanged; nothing is parsed here.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::poll_immediate;
use helmdeck_core::Code;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::limits::RequestSlot;
use crate::problem::Problem;

/// Reads a JSON body of at most `max_bytes`, which must arrive within `timeout`.
///
/// While a body arrives that did not come with its head, other requests may use the slot: slow
/// senders hold none.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    max_bytes: u64,
    timeout: Duration,
    slot: Option<&RequestSlot>,
) -> Result<Bytes, Problem> {
    check_headers(headers, max_bytes)?;
    let limit = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let mut reading = pin!(Limited::new(body, limit).collect());
    let read = match poll_immediate(&mut reading).await {
        Some(read) => read,
        None => {
            slot.inspect(|slot| slot.pause());
            let late = |_| {
                Problem::http(
                    StatusCode::REQUEST_TIMEOUT,
                    "the request body took too long to arrive",
                )
            };
            let read = tokio::time::timeout(timeout, reading).await.map_err(late)?;
            slot.map_or(Ok(()), RequestSlot::resume)?;
            read
        }
    };
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(max_bytes)),
        Err(_) => Err(Problem::http(
            StatusCode::BAD_REQUEST,
            "the request body could not be read",
        )),
    }
}

fn check_headers(headers: &HeaderMap, max_bytes: u64) -> Result<(), Problem> {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > max_bytes) {
        return Err(too_large(max_bytes));
    }
    if headers
        .get(CONTENT_ENCODING)
        .is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        // RFC 9110, section 15.5.16: the answer names what is accepted.
        return Err(Problem::http(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the body without a content encoding",
        )
        .with_header(ACCEPT_ENCODING, HeaderValue::from_static("identity")));
    }
    // Requiring JSON also blocks what an HTML form of a foreign page can send without a preflight.
    if headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| !is_json(value.as_bytes()))
    {
        return Err(Problem::http(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the input as JSON, with the header \"Content-Type: application/json\"",
        ));
    }
    Ok(())
}

/// Says whether a media type is `application/json` or ends in `+json`, with or without parameters.
pub(crate) fn is_json(media_type: &[u8]) -> bool {
    let end = media_type
        .iter()
        .position(|byte| *byte == b';')
        .unwrap_or(media_type.len());
    let name = media_type[..end].trim_ascii();
    name.eq_ignore_ascii_case(b"application/json")
        || name
            .len()
            .checked_sub(5)
            .is_some_and(|at| name[at..].eq_ignore_ascii_case(b"+json"))
}

fn too_large(max_bytes: u64) -> Problem {
    Problem::new(
        Code::TooLarge,
        format!("the request body is larger than {max_bytes} bytes"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::InFlight;

    #[test]
    fn json_is_known_by_its_media_type() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json ; x=1",
        ] {
            assert!(is_json(json.as_bytes()), "{json}");
        }
        for other in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonx",
            "json",
            "+jso",
            "",
        ] {
            assert!(!is_json(other.as_bytes()), "{other}");
        }
    }

    #[tokio::test]
    async fn large_bodies_are_refused_without_a_length_too() {
        let read =
            |bytes: &'static str| read_with(HeaderMap::new(), Body::from_stream(stream(bytes)));
        assert_eq!(read("1234").await.unwrap(), "1234");
        assert_eq!(read("12345").await.unwrap_err().status(), 413);
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(5))]);
        // The declared length is enough: the body is never read.
        assert_eq!(
            read_with(headers, Body::new(Untouchable))
                .await
                .unwrap_err()
                .status(),
            413
        );
    }

    #[tokio::test(start_paused = true)]
    async fn missing_body_times_out() {
        let never =
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(
            read_with(HeaderMap::new(), never)
                .await
                .unwrap_err()
                .status(),
            408
        );
    }

    #[tokio::test]
    async fn slow_body_holds_no_slot() {
        let pool = InFlight::new(1);
        let slot = RequestSlot::take(&pool).unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel::<Bytes>();
        let body = Body::from_stream(futures_util::stream::once(receiver));
        let headers = HeaderMap::new();
        let mut reading = pin!(read(
            &headers,
            body,
            9,
            Duration::from_secs(60),
            Some(&slot)
        ));
        assert!(poll_immediate(&mut reading).await.is_none());
        let other = RequestSlot::take(&pool).expect("free while the body is on its way");
        sender.send(Bytes::from_static(b"{}")).unwrap();
        assert_eq!(
            reading.await.unwrap_err().status(),
            503,
            "all slots are taken when the body is there"
        );
        drop(other);
        // A body that came with its head keeps the slot.
        let slot = RequestSlot::take(&pool).unwrap();
        assert_eq!(
            read(
                &headers,
                Body::from("{}"),
                9,
                Duration::from_secs(60),
                Some(&slot)
            )
            .await
            .unwrap(),
            "{}"
        );
        assert!(RequestSlot::take(&pool).is_err());
    }

    async fn read_with(headers: HeaderMap, body: Body) -> Result<Bytes, Problem> {
        read(&headers, body, 4, Duration::from_secs(1), None).await
    }

    fn stream(
        bytes: &'static str,
    ) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
        futures_util::stream::iter(
            bytes
                .as_bytes()
                .chunks(2)
                .map(|chunk| Ok(Bytes::from_static(chunk))),
        )
    }

    struct Untouchable;

    impl http_body::Body for Untouchable {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            panic!("the body was read");
        }
    }
}
