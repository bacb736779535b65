//! Host and origin check: keeps web pages of other origins out, also after DNS rebinding.
//!
//! A page of another site that made its own name point at 127.0.0.1 still sends that name as
//! `Host`. A page that calls this server directly sends its own `Origin`, and a browser adds
//! `Sec-Fetch-Site`. Both are refused before the body is read. Another port of this machine is
//! another origin: pages that are served there must not run packs.

use helmdeck_core::Code;
use helmdeck_server_config::{host_name, is_local_name};
use http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

use crate::body;
use crate::entry::{is_health, is_page};
use crate::problem::Problem;

/// Where the browser says a request came from (<https://www.w3.org/TR/fetch-metadata/>).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Route of the counters.
const METRICS: &str = "/metrics";

/// The names of this server and the origins that may call it.
#[derive(Debug)]
pub(crate) struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// Whether `/metrics` needs a token, so that its host does not matter.
    authenticates: bool,
}

/// Parts of a request that the check needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// Whether there is a body, of any length but 0.
    pub(crate) body: bool,
}

impl Guard {
    /// Makes the check from the operator's two lists. `authenticates` says whether callers need a
    /// token.
    pub(crate) fn new(hosts: &[String], origins: &[String], authenticates: bool) -> Self {
        let lower = |list: &[String]| list.iter().map(|text| text.to_ascii_lowercase()).collect();
        Self {
            hosts: lower(hosts),
            origins: lower(origins),
            authenticates,
        }
    }

    /// Refuses requests that were not addressed to this server, or come from a page of another
    /// origin.
    ///
    /// Returns the origin if it is one of `allowed_origins`: its page may read the answer.
    pub(crate) fn check<'a>(&self, asked: &Asked<'a>) -> Result<Option<&'a HeaderValue>, Problem> {
        let host = match self.check_host(asked.uri, asked.headers) {
            Err(problem) if problem.status() == StatusCode::FORBIDDEN && self.is_probe(asked) => {
                return Ok(None);
            }
            checked => checked?,
        };
        let mut origins = asked.headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (None, _) => None,
            (Some(origin), None) => Some(origin),
            (Some(_), Some(_)) => return Err(foreign()),
        };
        let text = origin.and_then(|origin| origin.to_str().ok());
        let listed = text.is_some_and(|text| {
            self.origins
                .iter()
                .any(|known| known.eq_ignore_ascii_case(text))
        });
        if listed {
            typed(asked)?;
            return Ok(origin);
        }
        if origin.is_some() {
            if !text.is_some_and(|text| is_same_origin(text, host)) {
                return Err(foreign());
            }
            if !is_form_of_a_page(asked) {
                typed(asked)?;
            }
        }
        let mut sites = asked.headers.get_all(SEC_FETCH_SITE).iter();
        if sites.any(|site| site != "same-origin" && site != "none") && !is_followed_link(asked) {
            return Err(foreign());
        }
        Ok(None)
    }

    /// Says whether a request is one of a balancer or of Prometheus: it goes to the address or the
    /// name of one server of several, and is not from a browser.
    fn is_probe(&self, asked: &Asked<'_>) -> bool {
        let path = asked.uri.path();
        let open = is_health(path) || (self.authenticates && path == METRICS);
        open && !asked.headers.contains_key(ORIGIN) && !asked.headers.contains_key(SEC_FETCH_SITE)
    }

    fn check_host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            _ => None,
        };
        let Some(host) = host else {
            return Err(Problem::http(
                StatusCode::BAD_REQUEST,
                "the request must have one Host header",
            ));
        };
        // A request target in absolute form overrides Host (RFC 9112, section 3.2.2), so it has to
        // pass as well.
        let target = uri
            .authority()
            .is_none_or(|authority| self.knows_host(authority.as_str()));
        if target && self.knows_host(host) {
            return Ok(host);
        }
        Err(Problem::new(
            Code::Forbidden,
            "this server does not go by that host name; add it to allowed_hosts if it should",
        ))
    }

    fn knows_host(&self, authority: &str) -> bool {
        let Some(name) = host_name(authority) else {
            return false;
        };
        is_local_name(name)
            || self.hosts.iter().any(|known| {
                known.eq_ignore_ascii_case(authority)
                    || (host_name(known) == Some(known.as_str())
                        && known.eq_ignore_ascii_case(name))
            })
    }
}

fn foreign() -> Problem {
    Problem::new(
        Code::Forbidden,
        "this origin may not call; add it to allowed_origins if it should",
    )
}

/// Refuses a body that a browser sends without asking first: one of no type or of a form's. JSON
/// from another origin needs a preflight (Fetch standard, "CORS-safelisted request-header"), which
/// only `allowed_origins` pass.
fn typed(asked: &Asked<'_>) -> Result<(), Problem> {
    if !asked.body
        || asked
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| body::is_json(kind.as_bytes()))
    {
        return Ok(());
    }
    Err(Problem::http(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "a web page must send the body as JSON, with the header \"Content-Type: application/json\"",
    ))
}

/// Says whether a page of ours sent a form. Its origin is ours, and its form has a token.
fn is_form_of_a_page(asked: &Asked<'_>) -> bool {
    let kind = asked.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    is_page(asked.uri.path()) && kind == Some(b"application/x-www-form-urlencoded".as_slice())
}

/// Says whether a person followed a link to one of our pages.
///
/// That only shows a page, and the other page cannot read it.
fn is_followed_link(asked: &Asked<'_>) -> bool {
    let says = |name: &HeaderName, value: &str| {
        asked.headers.get(name).is_some_and(|found| found == value)
    };
    let shows = matches!(*asked.method, Method::GET | Method::HEAD)
        && !asked.uri.path().starts_with("/api/");
    shows
        && says(&SEC_FETCH_MODE, "navigate")
        && says(&SEC_FETCH_DEST, "document")
        && asked.uri.path() != "/mcp"
}

/// Says whether an origin is the one that `Host` names: the same scheme, name and port.
///
/// The server itself speaks HTTP. For a name of the operator a TLS proxy may be in front, so the
/// scheme may be `https`; for a name of this machine it may not.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let (authority, secure) = match (
        origin.strip_prefix("http://"),
        origin.strip_prefix("https://"),
    ) {
        (Some(authority), _) => (authority, false),
        (_, Some(authority)) => (authority, true),
        _ => return false,
    };
    let port = if secure { ":443" } else { ":80" };
    let bare = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    let known = host_name(authority).is_some_and(|name| !secure || !is_local_name(name));
    known && bare(authority) == bare(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, uri: &str, headers: &[(&'static str, &str)]) -> Option<u16> {
        ask(guard, &Method::GET, uri, headers, false).err()
    }

    fn post(guard: &Guard, headers: &[(&'static str, &str)]) -> Option<u16> {
        ask(guard, &Method::POST, "/api/v1/packs/a.b", headers, true).err()
    }

    /// The origin that may read the answer, or the status of the refusal.
    fn ask(
        guard: &Guard,
        method: &Method,
        uri: &str,
        headers: &[(&'static str, &str)],
        body: bool,
    ) -> Result<Option<String>, u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let uri = uri.parse().unwrap();
        let answer = guard.check(&Asked {
            method,
            uri: &uri,
            headers: &map,
            body,
        });
        let origin = answer.map_err(|problem| problem.status().as_u16())?;
        Ok(origin.map(|origin| origin.to_str().unwrap().to_owned()))
    }

    #[test]
    fn this_machine_goes_by_its_loopback_names_only() {
        let guard = Guard::new(&[], &[], false);
        for host in [
            "localhost",
            "LOCALHOST:7700",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]",
            "[::1]:7700",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(check(&guard, "/", &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:7700",
            "[::2]",
            "user@localhost",
            "localhost:",
            "localhost:80x",
            "",
            "[::1",
            "0.0.0.0",
        ] {
            assert_eq!(check(&guard, "/", &[("host", host)]), Some(403), "{host}");
        }
    }

    #[test]
    fn a_missing_or_doubled_host_is_a_bad_request() {
        let guard = Guard::new(&[], &[], false);
        assert_eq!(check(&guard, "/", &[]), Some(400));
        assert_eq!(
            check(&guard, "/", &[("host", "localhost"), ("host", "localhost")]),
            Some(400)
        );
    }

    #[test]
    fn absolute_targets_are_checked_too() {
        let guard = Guard::new(&[], &[], false);
        assert_eq!(
            check(&guard, "http://evil.example/x", &[("host", "localhost")]),
            Some(403)
        );
        assert_eq!(
            check(&guard, "http://127.0.0.1:7700/x", &[("host", "localhost")]),
            None
        );
    }

    #[test]
    fn origin_must_match_scheme_name_and_port() {
        let guard = Guard::new(&[], &[], false);
        for (host, origin) in [
            ("localhost:7700", "http://localhost:7700"),
            ("LOCALHOST:7700", "http://localhost:7700"),
            ("localhost", "http://localhost:80"),
            ("127.0.0.1:80", "http://127.0.0.1"),
            ("[::1]:7700", "http://[::1]:7700"),
        ] {
            assert_eq!(
                check(&guard, "/", &[("host", host), ("origin", origin)]),
                None,
                "{host} {origin}"
            );
        }
        for origin in [
            "http://localhost:3000",
            "http://localhost",
            "http://127.0.0.1:7700",
            "https://localhost:7700",
            "http://[::1]:7700",
            "null",
            "https://evil.example",
            "file://",
            "http://localhost.evil.example",
            "localhost:7700",
            "",
        ] {
            let headers = [("host", "localhost:7700"), ("origin", origin)];
            assert_eq!(check(&guard, "/", &headers), Some(403), "{origin}");
        }
        // The same name and another port, with TLS.
        assert_eq!(
            check(
                &guard,
                "/",
                &[("host", "localhost"), ("origin", "https://localhost")]
            ),
            Some(403)
        );
        let two = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "http://localhost"),
        ];
        assert_eq!(check(&guard, "/", &two), Some(403));
    }

    #[test]
    fn body_from_a_page_must_be_json() {
        let guard = Guard::new(&[], &["https://app.example".to_owned()], false);
        for origin in ["http://localhost", "https://app.example"] {
            let from = [("host", "localhost"), ("origin", origin)];
            assert_eq!(post(&guard, &from), Some(415), "{origin}: no type");
            for kind in [
                "text/plain",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
            ] {
                let headers = [from[0], from[1], ("content-type", kind)];
                assert_eq!(post(&guard, &headers), Some(415), "{origin} {kind}");
            }
            assert_eq!(
                post(
                    &guard,
                    &[from[0], from[1], ("content-type", "application/json")]
                ),
                None
            );
            assert_eq!(
                ask(&guard, &Method::POST, "/", &from, false).err(),
                None,
                "no body, no type"
            );
        }
        // A program, which says no origin.
        assert_eq!(post(&guard, &[("host", "localhost")]), None);
    }

    #[test]
    fn fetch_metadata_of_other_sites_is_refused() {
        let guard = Guard::new(&[], &["https://app.example".to_owned()], false);
        for site in ["cross-site", "same-site", "", "x"] {
            assert_eq!(
                check(
                    &guard,
                    "/",
                    &[("host", "localhost"), ("sec-fetch-site", site)]
                ),
                Some(403),
                "{site}"
            );
            let json = [
                ("host", "localhost"),
                ("content-type", "application/json"),
                ("sec-fetch-site", site),
            ];
            assert_eq!(post(&guard, &json), Some(403), "{site}");
            let listed = [
                ("host", "localhost"),
                ("origin", "https://app.example"),
                ("sec-fetch-site", site),
            ];
            assert_eq!(check(&guard, "/", &listed), None, "{site}");
        }
        for site in ["same-origin", "none"] {
            assert_eq!(
                check(
                    &guard,
                    "/",
                    &[("host", "localhost"), ("sec-fetch-site", site)]
                ),
                None,
                "{site}"
            );
        }
    }

    #[test]
    fn followed_link_reaches_pages_only() {
        let guard = Guard::new(&[], &[], false);
        let link = [
            ("host", "localhost"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert_eq!(check(&guard, "/docs", &link), None);
        for path in ["/api/v1/packs", "/mcp"] {
            assert_eq!(check(&guard, path, &link), Some(403), "{path}");
        }
        assert_eq!(
            post(&guard, &link),
            Some(403),
            "a form that another site sends"
        );
        let framed = [link[0], link[1], link[2], ("sec-fetch-dest", "iframe")];
        assert_eq!(check(&guard, "/docs", &framed), Some(403));
    }

    #[test]
    fn listed_names_are_let_in_as_written() {
        let guard = Guard::new(
            &["Deck.Example".to_owned(), "port.example:8443".to_owned()],
            &["https://app.example".to_owned()],
            false,
        );
        assert_eq!(check(&guard, "/", &[("host", "deck.example:9000")]), None);
        assert_eq!(check(&guard, "/", &[("host", "port.example:8443")]), None);
        assert_eq!(check(&guard, "/", &[("host", "port.example:1")]), Some(403));
        assert_eq!(
            check(
                &guard,
                "/",
                &[("host", "deck.example"), ("origin", "https://deck.example")]
            ),
            None
        );
        assert_eq!(
            check(
                &guard,
                "/",
                &[("host", "localhost"), ("origin", "https://app.example")]
            ),
            None
        );
        assert_eq!(
            check(
                &guard,
                "/",
                &[("host", "localhost"), ("origin", "http://app.example")]
            ),
            Some(403)
        );
        let told = |origin| {
            ask(
                &guard,
                &Method::GET,
                "/",
                &[("host", "localhost"), ("origin", origin)],
                false,
            )
        };
        assert_eq!(
            told("https://app.example"),
            Ok(Some("https://app.example".to_owned()))
        );
        assert_eq!(
            told("http://localhost"),
            Ok(None),
            "its own page needs no permission to read"
        );
    }

    #[test]
    fn probes_reach_a_server_by_any_name() {
        let host = ("host", "10.1.2.3:7700");
        let (open, closed) = (Guard::new(&[], &[], false), Guard::new(&[], &[], true));
        for path in ["/healthz", "/readyz"] {
            assert_eq!(check(&open, path, &[host]), None, "{path}");
            // A page behind a name that was made to point here.
            assert_eq!(
                check(&open, path, &[host, ("sec-fetch-site", "same-origin")]),
                Some(403)
            );
            assert_eq!(
                check(&open, path, &[host, ("origin", "http://10.1.2.3:7700")]),
                Some(403)
            );
        }
        assert_eq!(
            check(&closed, "/metrics", &[host]),
            None,
            "it needs a token"
        );
        assert_eq!(check(&open, "/metrics", &[host]), Some(403));
        assert_eq!(check(&closed, "/api/v1/packs", &[host]), Some(403));
        assert_eq!(check(&closed, "/metrics/x", &[host]), Some(403));
    }
}
