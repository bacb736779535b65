//! An entry of the operator's list of non-public hosts that may be reached.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::Deserialize;
use url::Host;

/// A host name, or a network (`10.1.0.0/16`, `fd00::/8`, a single address).
///
/// A host name stands for that very name at any port and whatever it resolves to. Reads from text
/// with `parse`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Allowed {
    /// A host name, in lower case, without a final dot.
    Host(String),
    /// All addresses of a network.
    Network(IpNet),
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "\"{text}\" is neither a host nor a network; write for example \"git.example.com\", \"10.1.2.3\" or \"10.1.0.0/16\""
            )
        };
        let trimmed = text.trim();
        if trimmed.contains('/') {
            return trimmed
                .parse::<IpNet>()
                .map(|network| Self::Network(network.trunc()))
                .map_err(|_| bad());
        }
        if let Ok(address) = trimmed
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
        {
            return Ok(Self::Network(address.into()));
        }
        match Host::parse(trimmed) {
            Ok(Host::Domain(name)) => {
                let name = plain(&name);
                if name.is_empty() || name.contains('*') {
                    Err(bad())
                } else {
                    Ok(Self::Host(name))
                }
            }
            Ok(Host::Ipv4(address)) => Ok(Self::Network(IpAddr::V4(address).into())),
            Ok(Host::Ipv6(address)) => Ok(Self::Network(IpAddr::V6(address).into())),
            Err(_) => Err(bad()),
        }
    }
}

impl TryFrom<String> for Allowed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Network(network) => network.fmt(f),
        }
    }
}

/// Returns a host name in its canonical form for comparison.
///
/// That is lower case, without the final dot of a rooted name.
pub(crate) fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_addresses_and_networks_are_told_apart() {
        for (text, expected) in [
            ("Git.Example.com.", "git.example.com"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("::1", "::1/128"),
            ("[::1]", "::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("0x7f.1", "127.0.0.1/32"),
        ] {
            assert_eq!(
                text.parse::<Allowed>().unwrap().to_string(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "",
            "*",
            "*.example.com",
            "10.0.0.0/33",
            "a b",
            "http://x",
            "host:80",
            "1.2.3.4.5",
        ] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }
}
