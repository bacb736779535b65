//! Token of a request, read from its `Authorization` header only (RFC 6750, section 2).
//!
//! A token in a URL ends up in histories, logs of proxies and `Referer` headers (RFC 9700, section
//! 4.3.2). A request with one is refused even if its header is valid.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

use super::challenge::{Refusal, challenge};
use crate::problem::Problem;

/// Maximum size of a token in bytes, checked before it is decoded.
pub(crate) const MAX_TOKEN_BYTES: usize = 8 << 10;

/// Query parameters that clients put tokens in.
const IN_URL: &[&str] = &["access_token", "token", "api_key", "apikey"];

/// Returns the token of a request, `None` if it has none.
pub(crate) fn token<'a>(uri: &Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, Problem> {
    if uri.query().is_some_and(names_a_token) {
        let detail = "a token in the URL is never read, and now counts as leaked; send it in the Authorization header";
        return Err(challenge(Refusal::InvalidRequest, detail));
    }
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(challenge(
            Refusal::InvalidRequest,
            "the request must have one Authorization header",
        ));
    }
    let (scheme, token) = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(challenge(
            Refusal::OtherScheme,
            "the Authorization header must be \"Bearer\" and a token",
        ));
    }
    // RFC 6750, section 2.1: b64token.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES || !token.bytes().all(plain) {
        tracing::info!("a request was refused: its token is too long or not written as one");
        return Err(challenge(Refusal::InvalidToken, INVALID));
    }
    Ok(Some(token))
}

/// Text of the refusal of a token, whatever is wrong with it.
pub(crate) const INVALID: &str = "the bearer token is not valid";

fn names_a_token(query: &str) -> bool {
    query.split('&').any(|pair| {
        let name =
            percent_decode_str(pair.split('=').next().unwrap_or_default()).decode_utf8_lossy();
        IN_URL.iter().any(|known| known.eq_ignore_ascii_case(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str, authorization: &[&str]) -> Result<Option<String>, (u16, String)> {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        match token(&uri.parse().unwrap(), &headers) {
            Ok(token) => Ok(token.map(str::to_owned)),
            Err(problem) => Err((problem.status().as_u16(), problem.header_text())),
        }
    }

    #[test]
    fn one_header_with_one_token_is_read() {
        assert_eq!(read("/", &[]), Ok(None));
        assert_eq!(
            read("/?limit=1", &["Bearer abc.d-e_f"]),
            Ok(Some("abc.d-e_f".to_owned()))
        );
        assert_eq!(read("/", &["bEARER abc=="]), Ok(Some("abc==".to_owned())));
        assert_eq!(
            read("/", &[&format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES))])
                .map(|token| token.is_some()),
            Ok(true)
        );
    }

    #[test]
    fn malformed_headers_are_refused_by_rfc_6750() {
        for (authorization, status, error) in [
            (vec!["Bearer a", "Bearer a"], 400, "invalid_request"),
            (vec!["Basic YTpi"], 401, ""),
            (vec!["Bearer"], 401, ""),
            (vec![""], 401, ""),
            (vec!["Bearer "], 401, "invalid_token"),
            (vec!["Bearer  a"], 401, "invalid_token"),
            (vec!["Bearer a b"], 401, "invalid_token"),
            (vec!["Bearer a,Bearer b"], 401, "invalid_token"),
        ] {
            let (found, header) = read("/", &authorization).unwrap_err();
            assert_eq!(found, status, "{authorization:?}");
            assert!(header.starts_with("Bearer realm=\"helmdeck\""), "{header}");
            assert!(
                header.contains(&format!("error=\"{error}\""))
                    || error.is_empty() && !header.contains("error"),
                "{header}"
            );
        }
        assert_eq!(
            read(
                "/",
                &[&format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1))]
            )
            .unwrap_err()
            .0,
            401
        );
    }

    #[test]
    fn url_token_is_refused_beside_a_valid_header() {
        for query in [
            "access_token=x",
            "a=1&token=x",
            "api_key=",
            "ACCESS_TOKEN=x",
            "access%5Ftoken=x",
            "%61pi_key=x",
            "token",
        ] {
            let (status, header) =
                read(&format!("/api/v1/packs?{query}"), &["Bearer a"]).unwrap_err();
            assert_eq!(status, 400, "{query}");
            assert!(header.contains("invalid_request"), "{header}");
        }
        for query in [
            "tokens=1",
            "after=token=x",
            "prefix=access_token",
            "a%",
            "a%zz=1",
        ] {
            assert!(
                read(&format!("/?{query}"), &["Bearer a"]).is_ok(),
                "{query}"
            );
        }
    }
}
