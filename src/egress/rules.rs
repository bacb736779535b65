//! Decides whether a URL or an address may be reached, without resolving names.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use crate::address::{embedded, refused_kind};
use crate::allowed::{Allowed, plain};
use crate::error::{Error, Refused};

/// Default port of NATS servers.
const NATS_PORT: u16 = 4222;

/// The operator's list, and the one host and port that a guard may reach besides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) allow: Vec<Allowed>,
    pub(crate) named: Option<(Host<String>, u16)>,
    /// Whether nothing but that host and port may be reached, public or not.
    pub(crate) only_named: bool,
}

impl Rules {
    /// Returns the host and port that a URL names, if it is one for HTTP or NATS.
    pub(crate) fn target(url: &Url) -> Option<(Host<String>, u16)> {
        let port = match url.scheme() {
            "http" | "https" => url.port_or_known_default()?,
            "nats" | "tls" => url.port().unwrap_or(NATS_PORT),
            _ => return None,
        };
        let host = match url.host()?.to_owned() {
            // The parser reads an address as one for the schemes that it knows only.
            Host::Domain(name) => match name.parse() {
                Ok(IpAddr::V4(address)) => Host::Ipv4(address),
                _ => Host::Domain(plain(&name)),
            },
            address => address,
        };
        Some((host, port))
    }

    /// Checks all of a URL that can be checked without resolving its name.
    pub(crate) fn check_url(&self, url: &Url) -> Result<(), Error> {
        let target = Self::target(url).filter(|_| matches!(url.scheme(), "http" | "https"));
        let (host, port) = target.ok_or(Error::NotHttp)?;
        self.check_target(&host, port).map_err(Error::from)
    }

    /// Checks the server of a protocol whose client resolves names by itself.
    ///
    /// Its addresses cannot be checked, so the operator must have named the server, or allowed its
    /// host.
    pub(crate) fn check_server(&self, url: &Url) -> Result<(), Error> {
        let (host, port) = Self::target(url).ok_or(Error::NotServer)?;
        if self
            .named
            .as_ref()
            .is_some_and(|named| *named == (host.clone(), port))
            || (!self.only_named && self.allows_host(&host))
        {
            return Ok(());
        }
        Err(Refused::new(&host.to_string(), "it is no server that the operator named").into())
    }

    /// Checks a host, in the form of [`Rules::target`], and a port, without resolving the name.
    pub(crate) fn check_target(&self, host: &Host<String>, port: u16) -> Result<(), Refused> {
        if let Some((named, named_port)) = &self.named
            && named == host
        {
            // The resolver knows names but no ports, and lets a named host pass. So a named host at
            // another port must be stopped here, also where it happens to be public.
            return if port == *named_port || (!self.only_named && self.allows_host(host)) {
                Ok(())
            } else {
                Err(Refused::new(
                    &host.to_string(),
                    format!("only its port {named_port} is open"),
                ))
            };
        }
        if self.only_named {
            let named = self.named.as_ref().map_or_else(
                || "no host".to_owned(),
                |(named, port)| format!("{named}:{port}"),
            );
            return Err(Refused::new(
                &host.to_string(),
                format!("only {named} is open here"),
            ));
        }
        let address = match host {
            Host::Domain(_) => return Ok(()),
            Host::Ipv4(address) => IpAddr::V4(*address),
            Host::Ipv6(address) => IpAddr::V6(*address),
        };
        self.check_address(address)
            .map_err(|kind| Refused::new(&host.to_string(), format!("it is {kind}")))
    }

    /// Checks an address; the error says what kind of address it is.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), &'static str> {
        match refused_kind(address) {
            Some(kind) if !self.allows_address(address) => Err(kind),
            _ => Ok(()),
        }
    }

    /// Returns whether a name may resolve to any address.
    ///
    /// It may if it is on the list, or named (its port was checked with the URL).
    pub(crate) fn exempts(&self, name: &str) -> bool {
        let host = Host::Domain(plain(name));
        self.allows_host(&host) || self.named.as_ref().is_some_and(|(named, _)| *named == host)
    }

    fn allows_host(&self, host: &Host<String>) -> bool {
        match host {
            Host::Domain(name) => self
                .allow
                .iter()
                .any(|allowed| matches!(allowed, Allowed::Host(host) if host == name)),
            Host::Ipv4(address) => self.allows_address(IpAddr::V4(*address)),
            Host::Ipv6(address) => self.allows_address(IpAddr::V6(*address)),
        }
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let inner = match address {
            IpAddr::V6(address) => embedded(address).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let within = |network: &IpNet| {
            network.contains(&address) || inner.is_some_and(|inner| network.contains(&inner))
        };
        self.allow
            .iter()
            .any(|allowed| matches!(allowed, Allowed::Network(network) if within(network)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], named: Option<&str>) -> Rules {
        Rules {
            allow: allow.iter().map(|text| text.parse().unwrap()).collect(),
            named: named.map(|url| Rules::target(&Url::parse(url).unwrap()).unwrap()),
            only_named: false,
        }
    }

    fn check(rules: &Rules, url: &str) -> Result<(), String> {
        rules
            .check_url(&Url::parse(url).unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_spelling_of_a_loopback_address_is_refused() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://127.0.0.1./",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[0:0:0:0:0:ffff:7f00:0001]/",
            "http://[64:ff9b::7f00:1]/",
            "http://user:secret@127.0.0.1/",
            "http://example.com@127.0.0.1/",
            "http://①②⑦.⓪.⓪.①/",
            "https://0/",
        ] {
            let message = check(&rules(&[], None), url).unwrap_err();
            assert!(
                message.contains("may not be reached") && message.contains("HELMDECK_EGRESS_ALLOW"),
                "{url}: {message}"
            );
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn other_protocols_reach_servers_that_the_operator_named() {
        let server =
            |rules: &Rules, url: &str| rules.check_server(&Url::parse(url).unwrap()).is_ok();
        for (named, fine, refused) in [
            (
                "nats://events.test",
                vec!["nats://EVENTS.test.:4222", "tls://events.test"],
                vec!["nats://events.test:4223"],
            ),
            (
                "nats://127.0.0.1:4333",
                vec!["nats://127.0.0.1:4333"],
                vec!["nats://127.0.0.1", "nats://localhost:4333"],
            ),
            ("tls://[::1]", vec!["tls://[::1]:4222"], vec!["tls://[::2]"]),
        ] {
            let rules = rules(&[], Some(named));
            let public = [
                "nats://1.1.1.1",
                "nats://example.com",
                "nats://10.0.0.1",
                "postgres://events.test",
                "nats:x",
            ];
            assert!(fine.iter().all(|url| server(&rules, url)), "{named}");
            assert!(
                refused
                    .iter()
                    .chain(&public)
                    .all(|url| !server(&rules, url)),
                "{named}"
            );
        }
        assert!(server(
            &rules(&["events.test", "10.0.0.0/8"], None),
            "nats://events.test"
        ));
        assert!(server(
            &rules(&["events.test", "10.0.0.0/8"], None),
            "nats://10.1.2.3:99"
        ));
        assert!(!server(
            &Rules {
                only_named: true,
                ..rules(&["events.test"], None)
            },
            "nats://events.test"
        ));
        assert!(
            check(&rules(&[], Some("nats://a.test")), "nats://a.test")
                .unwrap_err()
                .contains("only http")
        );
    }

    #[test]
    fn only_http_and_https_are_reached() {
        for url in [
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "data:,x",
            "unix:/run/x",
        ] {
            assert!(
                check(&rules(&[], None), url)
                    .unwrap_err()
                    .contains("only http and https"),
                "{url}"
            );
        }
        assert_eq!(check(&rules(&[], None), "https://example.com/"), Ok(()));
    }

    #[test]
    fn the_operator_can_allow_a_network_an_address_or_a_host() {
        let rules = rules(&["10.1.0.0/16", "::1", "wiki.internal"], None);
        assert_eq!(check(&rules, "http://10.1.2.3/"), Ok(()));
        assert_eq!(check(&rules, "http://[::ffff:10.1.2.3]/"), Ok(()));
        assert!(check(&rules, "http://10.2.0.1/").is_err());
        assert_eq!(check(&rules, "http://[::1]:8080/"), Ok(()));
        assert!(rules.exempts("wiki.internal") && rules.exempts("WIKI.internal."));
        assert!(!rules.exempts("www.wiki.internal") && !rules.exempts("internal"));
    }

    #[test]
    fn a_named_host_is_open_at_exactly_its_port() {
        let address = rules(&[], Some("http://127.0.0.1:8080/api"));
        assert_eq!(check(&address, "http://127.0.0.1:8080/x"), Ok(()));
        assert_eq!(check(&address, "http://2130706433:8080/x"), Ok(()));
        assert!(
            check(&address, "http://127.0.0.1:8081/")
                .unwrap_err()
                .contains("only its port 8080")
        );
        assert!(check(&address, "http://127.0.0.2:8080/").is_err());

        let name = rules(&[], Some("https://ghe.internal/"));
        assert_eq!(check(&name, "https://GHE.internal.:443/"), Ok(()));
        assert!(check(&name, "http://ghe.internal/").is_err());
        assert!(name.exempts("ghe.internal") && !name.exempts("other.internal"));
    }

    #[test]
    fn a_guard_for_one_host_reaches_no_other() {
        let only = Rules {
            only_named: true,
            ..rules(&["other.internal"], Some("https://mcp.example.com/mcp"))
        };
        assert_eq!(check(&only, "https://mcp.example.com/x"), Ok(()));
        for url in [
            "https://mcp.example.com:8443/",
            "http://mcp.example.com/",
            "https://example.com/",
            "https://other.internal/",
            "https://93.184.215.14/",
        ] {
            assert!(check(&only, url).is_err(), "{url}");
        }
    }
}
