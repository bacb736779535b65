//! The services behind packs: their names, and what their HTTP answers say about limits.

use std::time::Duration;

use crate::Timestamp;

/// A larger reset of a quota is a Unix time: no quota lasts for 30 years.
const UNIX_TIMES: u64 = 1_000_000_000;

/// The service that a handler asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name: handlers of the same name and credential share its limits. A host, for example.
    pub name: String,
    /// Number of requests of its quota that are left for other uses.
    pub keep_quota: u64,
}

/// What is left of a quota of another service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Number of requests.
    pub remaining: u64,
    /// Time until the quota is full again.
    pub reset: Duration,
}

impl Quota {
    /// Reads the quota from the headers of an answer, `None` if they don't tell it. `header` gets
    /// names in lower case.
    ///
    /// The header is `RateLimit` (draft-ietf-httpapi-ratelimit-headers), of whose policies the one
    /// with the least left counts, or the older `RateLimit-*` and `X-RateLimit-*`, whose reset is a
    /// number of seconds, or a Unix time.
    ///
    /// # Examples
    /// ```
    /// use helmdeck_core::{Quota, Timestamp};
    ///
    /// let header = |name: &str| (name == "ratelimit").then_some(r#""day";r=900;t=3600, "burst";r=3;t=60"#);
    /// let quota = Quota::read(header, Timestamp(0)).unwrap();
    /// assert_eq!((quota.remaining, quota.reset.as_secs()), (3, 60));
    /// ```
    pub fn read<'a>(header: impl Fn(&str) -> Option<&'a str>, now: Timestamp) -> Option<Self> {
        let parameter = |policy: &str, name: &str| {
            policy.split(';').skip(1).find_map(|part| {
                part.trim()
                    .strip_prefix(name)?
                    .strip_prefix('=')?
                    .parse()
                    .ok()
            })
        };
        let policy = |policy: &str| {
            Some(Self {
                remaining: parameter(policy, "r")?,
                reset: Duration::from_secs(parameter(policy, "t")?),
            })
        };
        let policies = header("ratelimit")
            .into_iter()
            .flat_map(|value| value.split(','));
        if let Some(least) = policies
            .filter_map(policy)
            .min_by_key(|quota| quota.remaining)
        {
            return Some(least);
        }
        ["ratelimit", "x-ratelimit"].into_iter().find_map(|prefix| {
            let number = |name: &str| {
                header(&format!("{prefix}-{name}"))?
                    .trim()
                    .parse::<u64>()
                    .ok()
            };
            let (remaining, reset) = (number("remaining")?, number("reset")?);
            let at = Timestamp(i64::try_from(reset).ok()?.saturating_mul(1_000_000));
            let reset = if reset > UNIX_TIMES {
                at.since(now)
            } else {
                Duration::from_secs(reset)
            };
            Some(Self { remaining, reset })
        })
    }
}

/// What an upstream says about storing its answer (RFC 9111); by default nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caching {
    /// Nobody may store it.
    pub no_store: bool,
    /// It is for one caller.
    pub private: bool,
    /// How long it is fresh for one caller; `None` if that is not said.
    pub fresh_for: Option<Duration>,
    /// How long it is fresh where callers share it; `None` if that is not said.
    pub fresh_for_all: Option<Duration>,
    /// Limit of how long it is fresh, whatever the manifest says; `None` if there is none.
    pub at_most: Option<Duration>,
}

impl Caching {
    /// Reads it from the headers of an answer. `values` gets a name in lower case and returns the
    /// values of all such headers.
    ///
    /// `Vary: *` counts as `no-store`, a cookie as `private`, `no-cache` as fresh for no time. How
    /// long the answer was in other caches (`Age`) is subtracted.
    ///
    /// # Examples
    /// ```
    /// use helmdeck_core::Caching;
    ///
    /// let headers = [("cache-control", "private, max-age=60"), ("age", "20")];
    /// let caching = Caching::read(|name| headers.into_iter().filter(move |known| known.0 == name).map(|known| known.1));
    /// assert!(caching.private);
    /// assert_eq!(caching.fresh_for.unwrap().as_secs(), 40);
    /// ```
    pub fn read<'a, 'n, I: Iterator<Item = &'a str>>(values: impl Fn(&'n str) -> I) -> Self {
        let list = |name| {
            values(name)
                .flat_map(|value| value.split(','))
                .map(str::trim)
        };
        let first = |name| values(name).next().map(str::trim);
        let said = |directive: &str| {
            list("cache-control").find_map(|part| {
                let (name, value) = part.split_once('=').unwrap_or((part, ""));
                name.trim()
                    .eq_ignore_ascii_case(directive)
                    .then(|| value.trim().trim_matches('"'))
            })
        };
        let date = |name| Timestamp::parse_http_date(first(name)?);
        // What cannot be read counts as stale (RFC 9111 sections 4.2.1 and 5.3).
        let seconds = |text: &str| Duration::from_secs(text.parse().unwrap_or(0));
        let until = || Some(date("expires")?.since(date("date")?));
        let expires = || first("expires").map(|_| until().unwrap_or_default());
        let age = first("age").map(seconds).unwrap_or_default();
        let lifetime = said("max-age").map(seconds).or_else(expires);
        let for_all = said("s-maxage").map(seconds).or(lifetime);
        let left = |lifetime: Option<Duration>| match said("no-cache") {
            Some(_) => Some(Duration::ZERO),
            None => lifetime.map(|lifetime| lifetime.saturating_sub(age)),
        };
        Self {
            no_store: said("no-store").is_some() || list("vary").any(|name| name == "*"),
            private: said("private").is_some() || values("set-cookie").next().is_some(),
            fresh_for: left(lifetime),
            fresh_for_all: left(for_all),
            at_most: None,
        }
    }
}

/// Returns the wait that an answer asks for in `Retry-After` (RFC 9110 section 10.2.3), `None` if
/// it asks for none.
///
/// A date counts from the `Date` of the same answer, because our clock may differ. `header` gets
/// names in lower case.
pub fn retry_after<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Duration> {
    let text = header("retry-after")?.trim();
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => Some(
            Timestamp::parse_http_date(text)?
                .since(Timestamp::parse_http_date(header("date")?.trim())?),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(headers: &'a [(&str, &'a str)]) -> impl Fn(&str) -> Option<&'a str> {
        move |name| {
            headers
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| *value)
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let dates = [
            ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("date", "Sun, 06 Nov 1994 08:49:07 GMT"),
        ];
        for (headers, seconds) in [
            (&[("retry-after", " 7 ")][..], Some(7)),
            (&dates[..], Some(30)),
            (&dates[..1], None),
            (&[("retry-after", "-7")][..], None),
            (&[("retry-after", "soon")][..], None),
            (&[("retry-after", "1e300")][..], None),
            (&[][..], None),
        ] {
            assert_eq!(
                retry_after(of(headers)),
                seconds.map(Duration::from_secs),
                "{headers:?}"
            );
        }
    }

    #[test]
    fn caching_is_read_from_headers() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:07 GMT");
        let expires = |text| vec![date, ("expires", text)];
        let fresh = |one: u64, all: u64| Caching {
            fresh_for: Some(Duration::from_secs(one)),
            fresh_for_all: Some(Duration::from_secs(all)),
            ..Caching::default()
        };
        let no_store = Caching {
            no_store: true,
            ..Caching::default()
        };
        let private = Caching {
            private: true,
            ..Caching::default()
        };
        let said = |text| vec![("cache-control", text)];
        for (headers, expected) in [
            (vec![], Caching::default()),
            (said("public"), Caching::default()),
            (said("No-Store"), no_store),
            (
                vec![
                    ("cache-control", "public"),
                    ("cache-control", "max-age, no-store"),
                ],
                Caching {
                    no_store: true,
                    ..fresh(0, 0)
                },
            ),
            (vec![("vary", "accept"), ("vary", "cookie, *")], no_store),
            (vec![("vary", "accept-language")], Caching::default()),
            (said("private"), private),
            (said("private=\"x-secret\""), private),
            (vec![("set-cookie", "a=b")], private),
            (said("max-age=60"), fresh(60, 60)),
            (said("max-age=\"60\" , s-maxage = 600"), fresh(60, 600)),
            (said("max-age=-1"), fresh(0, 0)),
            (said("max-age=60, no-cache"), fresh(0, 0)),
            (
                vec![("cache-control", "max-age=60"), ("age", "3600")],
                fresh(0, 0),
            ),
            (
                vec![
                    ("cache-control", "max-age=60"),
                    ("age", "20"),
                    ("expires", "0"),
                ],
                fresh(40, 40),
            ),
            (expires("Sun, 06 Nov 1994 08:49:37 GMT"), fresh(30, 30)),
            (expires("Thu, 01 Jan 1970 00:00:00 GMT"), fresh(0, 0)),
            (expires("-1"), fresh(0, 0)),
        ] {
            let values = |name| {
                headers
                    .iter()
                    .filter(move |known| known.0 == name)
                    .map(|known| known.1)
            };
            assert_eq!(Caching::read(values), expected, "{headers:?}");
        }
    }

    #[test]
    fn quota_is_read_in_every_spelling() {
        let now = Timestamp(1_700_000_000_000_000);
        let expected = |remaining, reset| {
            Some(Quota {
                remaining,
                reset: Duration::from_secs(reset),
            })
        };
        for (headers, quota) in [
            (
                &[("ratelimit", "\"default\";r=50;t=30")][..],
                expected(50, 30),
            ),
            (
                &[("ratelimit-remaining", "5"), ("ratelimit-reset", "60")][..],
                expected(5, 60),
            ),
            (
                &[
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "1700000090"),
                ][..],
                expected(0, 90),
            ),
            (&[("x-ratelimit-remaining", "0")][..], None),
            (&[("ratelimit", "limit=10, remaining=5")][..], None),
        ] {
            assert_eq!(Quota::read(of(headers), now), quota, "{headers:?}");
        }
    }
}
