//! `Cache-Status` (RFC 9211) and `Age` of an answer.
//!
//! Answers without any cache use have neither header.

use std::io::Write;

use bytes::Bytes;
use helmdeck_core::{CacheInfo, CacheStatus, Directive, NotKept, hex_digits};
use http::header::AGE;
use http::{HeaderMap, HeaderName, HeaderValue};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Adds both headers. `directive` is that of the request.
pub(super) fn add(cache: &CacheInfo, directive: Directive, headers: &mut HeaderMap) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(status(cache, directive))) {
        headers.insert(CACHE_STATUS, value);
    }
    headers.insert(AGE, HeaderValue::from(cache.age.as_secs()));
}

fn status(cache: &CacheInfo, directive: Directive) -> Vec<u8> {
    let mut text = Vec::with_capacity(80);
    text.extend_from_slice(b"helmdeck; ");
    match cache.status {
        // A stale answer that was served is a hit whose ttl is below zero (RFC 9211, section 2.4).
        CacheStatus::Hit | CacheStatus::Stale => {
            // Writing to memory cannot fail.
            let _ = write!(text, "hit; ttl={}", time_left(cache));
        }
        CacheStatus::Miss if directive == Directive::Refresh => {
            text.extend_from_slice(b"fwd=request")
        }
        CacheStatus::Miss if cache.reason == Some("expired") => {
            text.extend_from_slice(b"fwd=stale")
        }
        CacheStatus::Miss => text.extend_from_slice(b"fwd=miss"),
        CacheStatus::Revalidated => text.extend_from_slice(b"fwd=stale; fwd-status=304; stored"),
        CacheStatus::Bypass => text.extend_from_slice(b"fwd=bypass"),
        CacheStatus::Coalesced => text.extend_from_slice(b"fwd=miss; collapsed"),
    }
    text.extend_from_slice(b"; key=\"");
    text.extend_from_slice(&hex_digits(cache.key));
    text.push(b'"');
    let not_kept = cache.not_kept.map(NotKept::text);
    if let Some(word) = cache.store_error.or(not_kept.as_deref()).or(cache.reason) {
        let _ = write!(text, "; detail={word}");
    }
    if let Some(after) = cache.retry_after {
        let _ = write!(
            text,
            "; retry-after={}",
            after.as_secs() + u64::from(after.subsec_nanos() > 0)
        );
    }
    text
}

/// Returns how many seconds the answer stays fresh; negative = for how long it has been stale.
fn time_left(cache: &CacheInfo) -> i64 {
    let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match cache.ttl.checked_sub(cache.age) {
        Some(left) => signed(left.as_secs()),
        // Rounded away from zero: what is stale by half a second must not read as `ttl=0`.
        None => -signed(
            (cache.age - cache.ttl).as_secs()
                + u64::from((cache.age - cache.ttl).subsec_nanos() > 0),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sfv::{Item, List, ListEntry, Parser, TokenRef};

    use super::*;

    fn info(status: CacheStatus, age_ms: u64) -> CacheInfo {
        CacheInfo {
            status,
            age: Duration::from_millis(age_ms),
            ttl: Duration::from_secs(300),
            key: [0, 1, 2, 3, 4, 5, 0xab, 0xff],
            store_error: None,
            reason: None,
            not_kept: None,
            retry_after: None,
        }
    }

    /// Checks a header by the grammar of RFC 8941 and the types of RFC 9211, section 2.
    fn assert_structured(text: &str) {
        let list: List = Parser::new(text)
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let [ListEntry::Item(Item { bare_item, params })] = list.as_slice() else {
            panic!("one cache: {text}")
        };
        assert_eq!(bare_item.as_token().map(TokenRef::as_str), Some("helmdeck"));
        for (name, value) in params {
            let right = match name.as_str() {
                "hit" | "stored" | "collapsed" => value.as_boolean() == Some(true),
                "ttl" | "fwd-status" | "retry-after" => value.as_integer().is_some(),
                "fwd" => value.as_token().is_some_and(|why| {
                    ["bypass", "miss", "request", "stale"].contains(&why.as_str())
                }),
                "key" => value.as_string().is_some(),
                "detail" => value.as_token().is_some(),
                _ => false,
            };
            assert!(right, "{name}: {text}");
        }
        assert!(
            params.contains_key("hit") != params.contains_key("fwd"),
            "{text}"
        );
    }

    fn read(info: &CacheInfo, directive: Directive) -> (String, String) {
        let mut headers = HeaderMap::new();
        add(info, directive, &mut headers);
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_structured(&text("cache-status"));
        (text("cache-status"), text("age"))
    }

    #[test]
    fn each_status_has_the_form_of_rfc_9211() {
        let key = r#"; key="000102030405abff""#;
        let expect = |status, age_ms, directive, text: &str, age: &str| {
            assert_eq!(
                read(&info(status, age_ms), directive),
                (format!("helmdeck; {text}{key}"), age.to_owned())
            );
        };
        let plain = Directive::Default;
        expect(CacheStatus::Hit, 1_999, plain, "hit; ttl=298", "1");
        expect(CacheStatus::Stale, 300_500, plain, "hit; ttl=-1", "300");
        expect(CacheStatus::Miss, 0, plain, "fwd=miss", "0");
        expect(CacheStatus::Miss, 0, Directive::Refresh, "fwd=request", "0");
        expect(
            CacheStatus::Revalidated,
            0,
            plain,
            "fwd=stale; fwd-status=304; stored",
            "0",
        );
        expect(CacheStatus::Bypass, 0, Directive::Bypass, "fwd=bypass", "0");
        expect(CacheStatus::Coalesced, 0, plain, "fwd=miss; collapsed", "0");
        let store_error = Some("read_only");
        let (text, _) = read(
            &CacheInfo {
                store_error,
                ..info(CacheStatus::Miss, 0)
            },
            plain,
        );
        assert_eq!(text, format!("helmdeck; fwd=miss{key}; detail=read_only"));
        let (reason, retry_after) = (Some("upstream_backoff"), Some(Duration::from_millis(5_200)));
        let (text, _) = read(
            &CacheInfo {
                reason,
                retry_after,
                ..info(CacheStatus::Stale, 301_000)
            },
            plain,
        );
        assert_eq!(
            text,
            format!("helmdeck; hit; ttl=-1{key}; detail=upstream_backoff; retry-after=6")
        );
    }

    #[test]
    fn every_detail_is_a_token() {
        let words = CacheInfo::STORE_ERRORS
            .into_iter()
            .chain(CacheInfo::REASONS);
        for word in words {
            read(
                &CacheInfo {
                    reason: Some(word),
                    ..info(CacheStatus::Miss, 0)
                },
                Directive::Default,
            );
        }
        let rules = helmdeck_core::leaks::rules().map(NotKept::Secret);
        for not_kept in NotKept::WORDS
            .into_iter()
            .map(NotKept::Because)
            .chain(rules)
        {
            read(
                &CacheInfo {
                    not_kept: Some(not_kept),
                    ..info(CacheStatus::Miss, 0)
                },
                Directive::Default,
            );
        }
    }
}
