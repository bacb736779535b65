//! The request's `Cache-Control` (RFC 9111, section 5.2.1; RFC 5861, section 4) as the engine's
//! cache directive.
//!
//! Without both gates open the engine ignores it, so it is parsed leniently: unknown directives
//! change nothing.

use std::time::Duration;

use helmdeck_core::{Call, Directive};
use http::HeaderMap;
use http::header::CACHE_CONTROL;

/// Maximum of a delta-seconds value; larger ones are read as this (RFC 9111, section 1.2.2).
const LONGEST: Duration = Duration::from_secs(1 << 31);

/// Applies the `Cache-Control` of a request to its call.
///
/// Of two conflicting directives the more restrictive one wins (RFC 9111, section 4.2.1):
/// `only-if-cached` never runs the handler, `no-store` never writes. Of two ages the smaller one
/// counts.
pub(super) fn apply(headers: &HeaderMap, call: &mut Call) {
    let mut wanted = CacheControl::default();
    for value in headers.get_all(CACHE_CONTROL) {
        for part in value.to_str().unwrap_or_default().split(',') {
            wanted.read(part, call);
        }
    }
    call.directive = match wanted {
        CacheControl {
            only_if_cached: true,
            no_cache,
            ..
        } => {
            if no_cache {
                // No stored answer is acceptable and none may be made: every answer is too old.
                call.max_age = Some(Duration::ZERO);
            }
            Directive::OnlyIfCached
        }
        CacheControl { no_store: true, .. } => Directive::Bypass,
        CacheControl { no_cache: true, .. } => Directive::Refresh,
        _ => return,
    };
}

#[derive(Default)]
struct CacheControl {
    no_store: bool,
    no_cache: bool,
    only_if_cached: bool,
}

impl CacheControl {
    fn read(&mut self, part: &str, call: &mut Call) {
        let (name, argument) = match part.split_once('=') {
            Some((name, argument)) => (name.trim(), Some(argument.trim().trim_matches('"'))),
            None => (part.trim(), None),
        };
        let is = |directive: &str| name.eq_ignore_ascii_case(directive);
        self.no_store |= is("no-store");
        self.no_cache |= is("no-cache");
        self.only_if_cached |= is("only-if-cached");
        if is("max-age") {
            let wanted = seconds(argument.unwrap_or_default());
            call.max_age = Some(call.max_age.map_or(wanted, |before| before.min(wanted)));
        } else if is("max-stale") {
            let wanted = argument.map_or(LONGEST, seconds);
            call.max_stale = Some(call.max_stale.map_or(wanted, |before| before.min(wanted)));
        } else if is("min-fresh") {
            let wanted = argument.map_or(Duration::ZERO, seconds);
            call.min_fresh = Some(call.min_fresh.map_or(wanted, |before| before.max(wanted)));
        } else if is("stale-if-error") {
            let wanted = argument.map_or(Duration::ZERO, seconds);
            call.stale_if_error = Some(
                call.stale_if_error
                    .map_or(wanted, |before| before.min(wanted)),
            );
        }
    }
}

/// A number that cannot be read counts as 0: an answer that is too fresh is never wrong.
fn seconds(digits: &str) -> Duration {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Duration::ZERO;
    }
    digits
        .parse()
        .map_or(LONGEST, |seconds| Duration::from_secs(seconds).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use helmdeck_core::{Identity, PackName};

    use super::*;

    fn read(values: &[&str]) -> (Directive, Option<u64>, Option<u64>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CACHE_CONTROL, value.parse().unwrap());
        }
        let mut call = Call::new(
            PackName::new("a.b").unwrap(),
            "{}",
            Arc::new(Identity::local()),
        );
        apply(&headers, &mut call);
        (
            call.directive,
            call.max_age.map(|age| age.as_secs()),
            call.max_stale.map(|age| age.as_secs()),
        )
    }

    #[test]
    fn directives_are_read_as_rfc_9111_writes_them() {
        assert_eq!(read(&[]), (Directive::Default, None, None));
        assert_eq!(read(&["no-cache"]), (Directive::Refresh, None, None));
        assert_eq!(read(&["No-Store"]), (Directive::Bypass, None, None));
        assert_eq!(
            read(&["only-if-cached"]),
            (Directive::OnlyIfCached, None, None)
        );
        assert_eq!(
            read(&["max-age=60, max-stale=\"30\""]),
            (Directive::Default, Some(60), Some(30))
        );
        assert_eq!(
            read(&["max-stale"]),
            (Directive::Default, None, Some(1 << 31))
        );
        assert_eq!(
            read(&["max-age=5", " only-if-cached ,, max-stale"]),
            (Directive::OnlyIfCached, Some(5), Some(1 << 31))
        );
    }

    #[test]
    fn the_one_that_does_less_wins_in_either_order() {
        assert_eq!(read(&["no-cache, no-store"]).0, Directive::Bypass);
        assert_eq!(read(&["no-store, no-cache"]).0, Directive::Bypass);
        assert_eq!(
            read(&["only-if-cached, no-store"]).0,
            Directive::OnlyIfCached
        );
        assert_eq!(
            read(&["only-if-cached, no-cache"]),
            (Directive::OnlyIfCached, Some(0), None)
        );
        assert_eq!(
            read(&["no-cache", "max-age=9, only-if-cached"]),
            (Directive::OnlyIfCached, Some(0), None)
        );
    }

    #[test]
    fn smaller_age_wins_in_either_order() {
        assert_eq!(read(&["max-age=0, max-age=100"]).1, Some(0));
        assert_eq!(read(&["max-age=100", "max-age=0"]).1, Some(0));
        assert_eq!(read(&["max-stale=5, max-stale"]).2, Some(5));
    }

    #[test]
    fn freshness_and_failures_are_read_too() {
        let mut headers = HeaderMap::new();
        headers.append(
            CACHE_CONTROL,
            "min-fresh=5, stale-if-error=60".parse().unwrap(),
        );
        headers.append(
            CACHE_CONTROL,
            "min-fresh=9, stale-if-error=30".parse().unwrap(),
        );
        let mut call = Call::new(
            PackName::new("a.b").unwrap(),
            "{}",
            Arc::new(Identity::local()),
        );
        apply(&headers, &mut call);
        let expected = (Some(Duration::from_secs(9)), Some(Duration::from_secs(30)));
        assert_eq!((call.min_fresh, call.stale_if_error), expected);
    }

    #[test]
    fn malformed_ages_count_as_zero() {
        assert_eq!(read(&["max-age=soon"]).1, Some(0));
        assert_eq!(read(&["max-age"]).1, Some(0));
        assert_eq!(read(&["max-stale=-5"]).2, Some(0));
        assert_eq!(read(&["max-age=99999999999999999999999"]).1, Some(1 << 31));
        assert_eq!(
            read(&["private, x-max-age=1, no-transform"]),
            (Directive::Default, None, None)
        );
    }
}
