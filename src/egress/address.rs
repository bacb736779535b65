//! Decides which IP addresses are not public, and why, from the address alone.
//!
//! The tables follow the special-purpose registries of IANA
//! ([IPv4](https://www.iana.org/assignments/iana-ipv4-special-registry),
//! [IPv6](https://www.iana.org/assignments/iana-ipv6-special-registry)). An IPv6 address that carries an IPv4 address
//! is judged by the one inside, since that is where the packet may end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const PRIVATE: &str = "a private address";
const LOOPBACK: &str = "a loopback address";
const LINK_LOCAL: &str = "a link-local address";
const METADATA: &str = "a metadata service";
const MULTICAST: &str = "a multicast address";
const UNSPECIFIED: &str = "an unspecified address";
const SHARED: &str = "an address shared by a carrier (CGNAT)";
const BENCHMARKING: &str = "an address for benchmarks";
const DOCUMENTATION: &str = "an address for documentation";
const RESERVED: &str = "a reserved address";

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(first: [u16; 4], bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(
        Ipv6Addr::new(first[0], first[1], first[2], first[3], 0, 0, 0, 0),
        bits,
    )
}

/// The first match counts, so single addresses come before the networks around them.
const V4: &[(Ipv4Net, &str)] = &[
    (v4(169, 254, 169, 254, 32), METADATA),
    (v4(100, 100, 100, 200, 32), METADATA),
    (v4(168, 63, 129, 16, 32), METADATA),
    (v4(192, 0, 0, 192, 32), METADATA),
    (v4(0, 0, 0, 0, 8), UNSPECIFIED),
    (v4(10, 0, 0, 0, 8), PRIVATE),
    (v4(100, 64, 0, 0, 10), SHARED),
    (v4(127, 0, 0, 0, 8), LOOPBACK),
    (v4(169, 254, 0, 0, 16), LINK_LOCAL),
    (v4(172, 16, 0, 0, 12), PRIVATE),
    (v4(192, 0, 0, 0, 24), RESERVED),
    (v4(192, 0, 2, 0, 24), DOCUMENTATION),
    (v4(192, 88, 99, 0, 24), RESERVED),
    (v4(192, 168, 0, 0, 16), PRIVATE),
    (v4(198, 18, 0, 0, 15), BENCHMARKING),
    (v4(198, 51, 100, 0, 24), DOCUMENTATION),
    (v4(203, 0, 113, 0, 24), DOCUMENTATION),
    (v4(224, 0, 0, 0, 4), MULTICAST),
    (v4(240, 0, 0, 0, 4), RESERVED),
];

const V6: &[(Ipv6Net, &str)] = &[
    (v6([0xfd00, 0x0ec2, 0, 0], 32), METADATA),
    (v6([0xfd20, 0x00ce, 0, 0], 32), METADATA),
    (v6([0x0064, 0xff9b, 1, 0], 48), PRIVATE),
    (v6([0x0100, 0, 0, 0], 8), RESERVED),
    (v6([0x2001, 2, 0, 0], 48), BENCHMARKING),
    (v6([0x2001, 0x0db8, 0, 0], 32), DOCUMENTATION),
    // Teredo, ORCHID and other protocol assignments: tunnels and identifiers, not hosts.
    (v6([0x2001, 0, 0, 0], 23), RESERVED),
    (v6([0x3fff, 0, 0, 0], 20), DOCUMENTATION),
    (v6([0xfc00, 0, 0, 0], 7), PRIVATE),
    (v6([0xfe80, 0, 0, 0], 10), LINK_LOCAL),
    (v6([0xfec0, 0, 0, 0], 10), PRIVATE),
    (v6([0xff00, 0, 0, 0], 8), MULTICAST),
];

/// All addresses assigned to ordinary hosts are in this range.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Returns what makes an address not public (`a private address`), `None` for a public one.
#[must_use]
pub fn refused_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter()
        .find(|(network, _)| network.contains(&address))
        .map(|(_, kind)| *kind)
}

fn kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some(UNSPECIFIED);
    }
    if address.is_loopback() {
        return Some(LOOPBACK);
    }
    if let Some(kind) = V6
        .iter()
        .find(|(network, _)| network.contains(&address))
        .map(|(_, kind)| *kind)
    {
        return Some(kind);
    }
    match embedded(address) {
        Some(inner) => kind_v4(inner),
        None if GLOBAL_UNICAST.contains(&address) => None,
        None => Some(RESERVED),
    }
}

/// Returns the IPv4 address that an IPv6 address carries, if its form says that it carries one.
pub(crate) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let join = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match parts {
        // Mapped (RFC 4291), compatible (deprecated there), translated (RFC 2765).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            Some(join(high, low))
        }
        // NAT64 (RFC 6052), ISATAP (RFC 5214) below any prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => {
            Some(join(high, low))
        }
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: &str) -> Option<&'static str> {
        refused_kind(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_pass() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "140.82.121.6",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    #[test]
    fn addresses_that_are_not_public_are_named_by_their_kind() {
        for (address, expected) in [
            ("0.0.0.0", UNSPECIFIED),
            ("0.1.2.3", UNSPECIFIED),
            ("10.255.255.255", PRIVATE),
            ("100.64.0.1", SHARED),
            ("100.100.100.200", METADATA),
            ("127.0.0.1", LOOPBACK),
            ("127.255.255.254", LOOPBACK),
            ("168.63.129.16", METADATA),
            ("169.254.0.1", LINK_LOCAL),
            ("169.254.169.254", METADATA),
            ("172.16.0.1", PRIVATE),
            ("172.31.255.255", PRIVATE),
            ("192.0.0.8", RESERVED),
            ("192.0.2.1", DOCUMENTATION),
            ("192.168.1.1", PRIVATE),
            ("198.18.0.1", BENCHMARKING),
            ("198.19.255.255", BENCHMARKING),
            ("198.51.100.1", DOCUMENTATION),
            ("203.0.113.1", DOCUMENTATION),
            ("224.0.0.1", MULTICAST),
            ("239.255.255.255", MULTICAST),
            ("240.0.0.1", RESERVED),
            ("255.255.255.255", RESERVED),
            ("::", UNSPECIFIED),
            ("::1", LOOPBACK),
            ("fd00:ec2::254", METADATA),
            ("fc00::1", PRIVATE),
            ("fdff::1", PRIVATE),
            ("fe80::1", LINK_LOCAL),
            ("febf::1", LINK_LOCAL),
            ("fec0::1", PRIVATE),
            ("ff02::1", MULTICAST),
            ("100::1", RESERVED),
            ("2001::1", RESERVED),
            ("2001:2::1", BENCHMARKING),
            ("2001:db8::1", DOCUMENTATION),
            ("3fff::1", DOCUMENTATION),
            ("64:ff9b:1::1", PRIVATE),
            ("4000::1", RESERVED),
            ("5f00::1", RESERVED),
        ] {
            assert_eq!(kind(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn an_ipv4_address_inside_an_ipv6_address_is_found() {
        for address in [
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::1",
            "2606:4700::5efe:7f00:1",
            "2606:4700::200:5efe:7f00:1",
        ] {
            assert_eq!(kind(address), Some(LOOPBACK), "{address}");
        }
        assert_eq!(kind("::ffff:169.254.169.254"), Some(METADATA));
        assert_eq!(kind("64:ff9b::10.0.0.1"), Some(PRIVATE));
    }
}
