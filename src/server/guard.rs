//! Who may address this server: the check of `Host` and `Origin` that keeps other people's web pages out (DNS rebinding).
//!
//! A page of a foreign site that made its own name point at 127.0.0.1 still sends that name as `Host`; a page that calls us
//! directly still sends its own `Origin`. Both are refused before anything is read.

use std::net::IpAddr;

use helmdeck_core::Code;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode, Uri};

use crate::problem::Problem;

/// The names and origins that are let in besides those of this machine.
#[derive(Debug)]
pub(crate) struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    /// Makes the check from the operator's two lists.
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Self {
        let lower = |list: &[String]| list.iter().map(|text| text.to_ascii_lowercase()).collect();
        Self { hosts: lower(hosts), origins: lower(origins) }
    }

    /// Refuses a request that was not addressed to this server, or that a foreign page made.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = self.check_host(uri, headers)?;
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let known = origins.next().is_none() && origin.to_str().is_ok_and(|origin| self.knows_origin(origin, host));
        if known {
            return Ok(());
        }
        Err(Problem::new(Code::Forbidden, "this origin may not call; add it to allowed_origins if it should"))
    }

    fn check_host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            _ => None,
        };
        let Some(host) = host else {
            return Err(Problem::http(StatusCode::BAD_REQUEST, "the request must have one Host header"));
        };
        // A request target in absolute form overrides Host (RFC 9112, section 3.2.2), so it has to pass as well.
        let target = uri.authority().is_none_or(|authority| self.knows_host(authority.as_str()));
        if target && self.knows_host(host) {
            return Ok(host);
        }
        Err(Problem::new(
            Code::Forbidden,
            "this server does not go by that host name; add it to allowed_hosts if it should",
        ))
    }

    fn knows_host(&self, authority: &str) -> bool {
        let Some(name) = host_name(authority) else { return false };
        is_local_name(name)
            || self.hosts.iter().any(|known| {
                known.eq_ignore_ascii_case(authority)
                    || (host_name(known) == Some(known.as_str()) && known.eq_ignore_ascii_case(name))
            })
    }

    fn knows_origin(&self, origin: &str, host: &str) -> bool {
        let Some(authority) = origin_authority(origin) else { return false };
        authority.eq_ignore_ascii_case(host)
            || host_name(authority).is_some_and(is_local_name)
            || self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin))
    }
}

/// Returns the host of `host[:port]` (an IPv6 address without its brackets), `None` if the text is something else.
pub(crate) fn host_name(authority: &str) -> Option<&str> {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            name.parse::<std::net::Ipv6Addr>().ok()?;
            (name, port)
        }
        None => {
            let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if name.is_empty() || !name.bytes().all(plain) {
                return None;
            }
            (name, port)
        }
    };
    match port.strip_prefix(':') {
        Some(digits) => (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(name),
        None => port.is_empty().then_some(name),
    }
}

/// Returns the `host[:port]` of a web origin, `None` if the text is not one (also for `null`).
pub(crate) fn origin_authority(origin: &str) -> Option<&str> {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
    host_name(authority).map(|_| authority)
}

fn is_local_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// Says whether an address stays on this machine, also when an IPv4 address is written as IPv6.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, uri: &str, headers: &[(&'static str, &str)]) -> Option<u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        guard.check(&uri.parse().unwrap(), &map).err().map(|problem| problem.status().as_u16())
    }

    #[test]
    fn this_machine_goes_by_its_loopback_names_only() {
        let guard = Guard::new(&[], &[]);
        for host in
            ["localhost", "LOCALHOST:7700", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:7700", "[::ffff:127.0.0.1]:1"]
        {
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
        let guard = Guard::new(&[], &[]);
        assert_eq!(check(&guard, "/", &[]), Some(400));
        assert_eq!(check(&guard, "/", &[("host", "localhost"), ("host", "localhost")]), Some(400));
    }

    #[test]
    fn an_absolute_target_does_not_get_around_the_check() {
        let guard = Guard::new(&[], &[]);
        assert_eq!(check(&guard, "http://evil.example/x", &[("host", "localhost")]), Some(403));
        assert_eq!(check(&guard, "http://127.0.0.1:7700/x", &[("host", "localhost")]), None);
    }

    #[test]
    fn foreign_origins_are_refused() {
        let guard = Guard::new(&[], &[]);
        for origin in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080"] {
            assert_eq!(check(&guard, "/", &[("host", "localhost"), ("origin", origin)]), None, "{origin}");
        }
        for origin in ["null", "https://evil.example", "file://", "http://localhost.evil.example", "localhost", ""] {
            assert_eq!(check(&guard, "/", &[("host", "localhost"), ("origin", origin)]), Some(403), "{origin}");
        }
        let two = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost")];
        assert_eq!(check(&guard, "/", &two), Some(403));
    }

    #[test]
    fn listed_names_are_let_in_as_written() {
        let guard = Guard::new(
            &["Deck.Example".to_owned(), "port.example:8443".to_owned()],
            &["https://app.example".to_owned()],
        );
        assert_eq!(check(&guard, "/", &[("host", "deck.example:9000")]), None);
        assert_eq!(check(&guard, "/", &[("host", "port.example:8443")]), None);
        assert_eq!(check(&guard, "/", &[("host", "port.example:1")]), Some(403));
        assert_eq!(check(&guard, "/", &[("host", "deck.example"), ("origin", "https://deck.example")]), None);
        assert_eq!(check(&guard, "/", &[("host", "localhost"), ("origin", "https://app.example")]), None);
        assert_eq!(check(&guard, "/", &[("host", "localhost"), ("origin", "http://app.example")]), Some(403));
    }
}
