//! Hosts, origins and networks, as settings and requests write them.

use std::net::IpAddr;

use ipnet::IpNet;

/// Returns the host of `host[:port]`, `None` if the text is something else.
///
/// An IPv6 address comes without its brackets.
#[must_use]
pub fn host_name(authority: &str) -> Option<&str> {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            name.parse::<std::net::Ipv6Addr>().ok()?;
            (name, port)
        }
        None => {
            let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let plain =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if name.is_empty() || !name.bytes().all(plain) {
                return None;
            }
            (name, port)
        }
    };
    match port.strip_prefix(':') {
        Some(digits) => {
            (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(name)
        }
        None => port.is_empty().then_some(name),
    }
}

/// Returns the `host[:port]` of a web origin, `None` if the text is not one (also for `null`).
#[must_use]
pub fn origin_authority(origin: &str) -> Option<&str> {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"))?;
    host_name(authority).map(|_| authority)
}

/// Says whether a host is this machine, by its name or a loopback address.
#[must_use]
pub fn is_local_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// Says whether an address is a loopback address, also for an IPv4 address written as IPv6.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Parses an address or a network, for example `10.0.0.7` or `10.0.0.0/8`.
#[must_use]
pub fn network(text: &str) -> Option<IpNet> {
    let address = |text: &str| {
        text.parse::<IpAddr>()
            .ok()
            .map(|address| IpNet::from(address.to_canonical()))
    };
    text.parse::<IpNet>().ok().or_else(|| address(text))
}
