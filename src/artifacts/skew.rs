//! Requests to a bucket while the clock of this machine is wrong.
//!
//! A store refuses a signature whose time is more than 15 minutes from its own. Each of its answers
//! says what time it is there (`Date`), so a request is signed anew with that time, as the SDKs of
//! AWS do. The rules are those of AWS Signature Version 4 in the `Authorization` header.

use std::borrow::Cow;
use std::sync::atomic::{AtomicI64, Ordering};

use helmdeck_core::{Secret, Timestamp, hex};
use hmac::{Hmac, KeyInit, Mac};
use http::header::{AUTHORIZATION, DATE, HOST};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use url::{Position, Url};

/// Difference that no store minds, in seconds.
const TOLERATED: i64 = 300;
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const AT: &str = "x-amz-date";
const DIGEST: &str = "x-amz-content-sha256";
/// What is encoded in a query: all but the unreserved characters of RFC 3986.
const ENCODED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// How far the clock of this machine is behind that of a store.
#[derive(Debug)]
pub(crate) struct Skew {
    secret: Secret,
    /// In seconds; 0 = they agree.
    behind: AtomicI64,
}

impl Skew {
    /// Signs with a secret access key.
    pub(crate) const fn new(secret: Secret) -> Self {
        Self {
            secret,
            behind: AtomicI64::new(0),
        }
    }

    /// Signs a request anew if the clocks differ. Returns the difference that it is signed with.
    pub(crate) fn correct<B>(&self, request: &mut Request<B>, now: Timestamp) -> i64 {
        let behind = self.behind.load(Ordering::Relaxed);
        if behind != 0 {
            self.sign(request, now);
        }
        behind
    }

    /// Signs a request anew, for the time of the store.
    pub(crate) fn sign<B>(&self, request: &mut Request<B>, now: Timestamp) {
        let behind = self
            .behind
            .load(Ordering::Relaxed)
            .saturating_mul(1_000_000);
        sign(
            request,
            Timestamp(now.micros().saturating_add(behind)),
            &self.secret,
        );
    }

    /// Notes the time of a store. Returns whether a request was refused because it was signed with
    /// another one: then the same request, signed anew, is worth another try.
    pub(crate) fn note(
        &self,
        signed: i64,
        status: StatusCode,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> bool {
        let Some(there) = headers
            .get(DATE)
            .and_then(|date| jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok())
        else {
            return false;
        };
        let behind = there
            .timestamp()
            .as_second()
            .saturating_sub(now.micros().div_euclid(1_000_000));
        let behind = if behind.abs() > TOLERATED { behind } else { 0 };
        let before = self.behind.swap(behind, Ordering::Relaxed);
        if behind != 0 && before == 0 {
            tracing::warn!(
                seconds = behind,
                "the clock of this machine differs from that of the store of artifacts, whose time is used for its requests"
            );
        }
        status == StatusCode::FORBIDDEN && (behind - signed).abs() > TOLERATED
    }
}

/// Signs a request anew for another time. One that is not signed in this way stays as it is.
fn sign<B>(request: &mut Request<B>, at: Timestamp, secret: &Secret) -> Option<()> {
    let authorization = request
        .headers()
        .get(AUTHORIZATION)?
        .to_str()
        .ok()?
        .to_owned();
    let part = |name: &str| {
        let rest = authorization.strip_prefix(ALGORITHM)?;
        rest.split(',')
            .find_map(|part| part.trim().strip_prefix(name))
    };
    let (credential, signed) = (part("Credential=")?, part("SignedHeaders=")?);
    let mut of_credential = credential.rsplitn(5, '/');
    let [_, service, region, _, key] =
        std::array::from_fn(|_| of_credential.next().unwrap_or_default());

    let at = jiff::Timestamp::from_microsecond(at.micros())
        .ok()?
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    let day = &at[..8];
    request
        .headers_mut()
        .insert(AT, HeaderValue::from_str(&at).ok()?);
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let to_sign = format!(
        "{ALGORITHM}\n{at}\n{scope}\n{}",
        hex(&Sha256::digest(canonical(request, signed)?))
    );
    let mut signature = format!("AWS4{}", secret.expose()).into_bytes();
    for part in [day, region, service, "aws4_request", &to_sign] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&signature).ok()?;
        mac.update(part.as_bytes());
        signature = mac.finalize().into_bytes().to_vec();
    }
    let signature = hex(&signature);
    let value = format!(
        "{ALGORITHM} Credential={key}/{scope}, SignedHeaders={signed}, Signature={signature}"
    );
    request
        .headers_mut()
        .insert(AUTHORIZATION, HeaderValue::from_str(&value).ok()?);
    Some(())
}

/// Returns the canonical form of a request, with these headers.
fn canonical<B>(request: &Request<B>, signed: &str) -> Option<String> {
    let url = Url::parse(&request.uri().to_string()).ok()?;
    let mut query: Vec<(Cow<'_, str>, Cow<'_, str>)> = url.query_pairs().collect();
    query.sort();
    let query: Vec<String> = query
        .iter()
        .map(|(name, value)| {
            format!(
                "{}={}",
                utf8_percent_encode(name, &ENCODED),
                utf8_percent_encode(value, &ENCODED)
            )
        })
        .collect();
    let mut headers = String::new();
    for name in signed.split(';') {
        let values: Vec<String> = if name == HOST.as_str() {
            vec![url[Position::BeforeHost..Position::AfterPort].to_owned()]
        } else {
            let all = request.headers().get_all(name).iter();
            all.map(|value| {
                Some(
                    value
                        .to_str()
                        .ok()?
                        .split_whitespace()
                        .collect::<Vec<_>>()
                        .join(" "),
                )
            })
            .collect::<Option<_>>()?
        };
        headers.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    let digest = request
        .headers()
        .get(DIGEST)
        .map_or(Ok("UNSIGNED-PAYLOAD"), HeaderValue::to_str)
        .ok()?;
    Some(format!(
        "{}\n{}\n{}\n{headers}\n{signed}\n{digest}",
        request.method(),
        url.path(),
        query.join("&")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Object" of AWS, "Signature Calculations for the Authorization Header",
    /// 2013-05-24.
    const EXAMPLE: &str = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                           SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
                           Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    const THEN: Timestamp = Timestamp(1_369_353_600_000_000);
    const HOUR: i64 = 3_600;

    fn secret() -> Secret {
        Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned())
    }

    fn example(authorization: &str) -> Request<()> {
        Request::get("https://examplebucket.s3.amazonaws.com/test.txt")
            .header(AUTHORIZATION, authorization)
            .header("range", "bytes=0-9")
            .header(AT, "20200101T000000Z")
            .header(
                DIGEST,
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            )
            .body(())
            .unwrap()
    }

    #[test]
    fn the_example_of_aws_is_signed_as_there() {
        let stale = EXAMPLE
            .replace("20130524", "20200101")
            .replace("f0e8", "0000");
        let mut request = example(&stale);
        sign(&mut request, THEN, &secret()).unwrap();
        assert_eq!(request.headers()[AUTHORIZATION], EXAMPLE);
        assert_eq!(request.headers()[AT], "20130524T000000Z");
    }

    #[test]
    fn the_example_with_a_query_is_signed_as_there() {
        // "Get Bucket (List Objects)" of the same page.
        let signed = "host;x-amz-content-sha256;x-amz-date";
        let authorization = |signature: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                 SignedHeaders={signed}, Signature={signature}"
            )
        };
        let mut request = example(&authorization("0"));
        *request.uri_mut() = "https://examplebucket.s3.amazonaws.com/?prefix=J&max-keys=2"
            .parse()
            .unwrap();
        sign(&mut request, THEN, &secret()).unwrap();
        let expected =
            authorization("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
        assert_eq!(request.headers()[AUTHORIZATION], expected);
    }

    #[test]
    fn requests_are_signed_with_the_time_of_the_store() {
        let skew = Skew::new(secret());
        let date = |at: i64| {
            let date = jiff::Timestamp::from_second(at).unwrap();
            let date = jiff::fmt::rfc2822::DateTimePrinter::new()
                .timestamp_to_rfc9110_string(&date)
                .unwrap();
            HeaderMap::from_iter([(DATE, HeaderValue::from_str(&date).unwrap())])
        };
        let (there, ahead) = (
            THEN.micros() / 1_000_000,
            Timestamp(THEN.micros() + HOUR * 1_000_000),
        );
        let mut request = example(EXAMPLE);
        assert_eq!(skew.correct(&mut request, ahead), 0);
        assert_eq!(
            request.headers()[AT],
            "20200101T000000Z",
            "it stays as it is"
        );
        // Refused for its time, so it is worth another try; for another reason it is not.
        assert!(skew.note(0, StatusCode::FORBIDDEN, &date(there), ahead));
        assert_eq!(skew.correct(&mut request, ahead), -HOUR);
        assert_eq!(request.headers()[AT], "20130524T000000Z");
        assert!(!skew.note(-HOUR, StatusCode::FORBIDDEN, &date(there), ahead));
        assert!(!skew.note(-HOUR, StatusCode::OK, &date(there), ahead));
        // The clock is right again.
        assert!(skew.note(-HOUR, StatusCode::FORBIDDEN, &date(there), THEN));
        assert_eq!(skew.correct(&mut request, THEN), 0);
        assert!(
            !skew.note(0, StatusCode::OK, &HeaderMap::new(), ahead),
            "an answer without a date says nothing"
        );
        assert_eq!(skew.correct(&mut request, ahead), 0);
        assert!(!skew.note(0, StatusCode::OK, &date(there - TOLERATED), THEN));
        assert_eq!(
            skew.correct(&mut request, THEN),
            0,
            "no store minds a few minutes"
        );
    }

    #[test]
    fn other_requests_stay_as_they_are() {
        for other in ["Bearer x", "AWS4-HMAC-SHA256 Credential=a", ""] {
            let mut request = example(other);
            assert!(sign(&mut request, THEN, &secret()).is_none());
            assert_eq!(request.headers()[AUTHORIZATION], other);
        }
    }
}
