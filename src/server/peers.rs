//! Limits per peer address, so that one cannot take every connection and every request slot.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::limits::InFlight;

/// Part of an IPv6 address that identifies a peer: the network of one site (RFC 6177).
const IPV6_PREFIX: u128 = u128::MAX << 64;

/// Connections and request slots of each peer.
#[derive(Debug)]
pub(crate) struct Peers {
    connections: usize,
    requests: usize,
    proxies: Vec<IpNet>,
    known: Mutex<HashMap<IpAddr, PeerLoad>>,
}

#[derive(Debug)]
struct PeerLoad {
    connections: usize,
    requests: InFlight,
}

/// Connection of a peer. Dropping it releases its permit.
#[derive(Debug)]
pub(crate) struct Peer {
    peers: Arc<Peers>,
    /// `None` = a proxy, which has no limits.
    counted: Option<(IpAddr, InFlight)>,
}

impl Peers {
    /// Sets the limits of each peer. Addresses in `proxies` have none.
    pub(crate) fn new(connections: usize, requests: usize, proxies: Vec<IpNet>) -> Arc<Self> {
        Arc::new(Self {
            connections,
            requests,
            proxies,
            known: Mutex::default(),
        })
    }

    /// Takes a permit for a connection, `None` if the peer has reached its limit.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Peer> {
        let address = address.to_canonical();
        if self.proxies.iter().any(|proxy| proxy.contains(&address)) {
            return Some(Peer {
                peers: Arc::clone(self),
                counted: None,
            });
        }
        let address = match address {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & IPV6_PREFIX)),
            v4 @ IpAddr::V4(_) => v4,
        };
        let mut known = self.known.lock();
        let new = || PeerLoad {
            connections: 0,
            requests: InFlight::new(self.requests),
        };
        let peer = known.entry(address).or_insert_with(new);
        if peer.connections >= self.connections {
            return None;
        }
        peer.connections += 1;
        Some(Peer {
            peers: Arc::clone(self),
            counted: Some((address, peer.requests.clone())),
        })
    }
}

impl Peer {
    /// Returns the counter of the peer's running requests, `None` if they are not limited.
    pub(crate) fn requests(&self) -> Option<&InFlight> {
        self.counted.as_ref().map(|(_, requests)| requests)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let Some((address, _)) = &self.counted else {
            return;
        };
        let mut known = self.peers.known.lock();
        if let Some(peer) = known.get_mut(address) {
            peer.connections -= 1;
            if peer.connections == 0 {
                known.remove(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_server_config::network;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn peer_gets_its_share_and_frees_it() {
        let peers = Peers::new(2, 1, Vec::new());
        let first = peers.enter(ip("192.0.2.1")).unwrap();
        // The same address, written as IPv6.
        let second = peers.enter(ip("::ffff:192.0.2.1")).unwrap();
        assert!(peers.enter(ip("192.0.2.1")).is_none());
        assert!(peers.enter(ip("192.0.2.2")).is_some());
        let work = first.requests().unwrap().enter().unwrap();
        assert!(
            second.requests().unwrap().enter().is_err(),
            "requests are counted over all connections"
        );
        drop((work, first));
        assert!(peers.enter(ip("192.0.2.1")).is_some());
        drop(second);
        assert!(peers.known.lock().is_empty());
    }

    #[test]
    fn ipv6_network_is_one_peer() {
        let peers = Peers::new(1, 1, Vec::new());
        let _held = peers.enter(ip("2001:db8:1:2::1")).unwrap();
        assert!(peers.enter(ip("2001:db8:1:2:ffff::9")).is_none());
        assert!(peers.enter(ip("2001:db8:1:3::1")).is_some());
    }

    #[test]
    fn proxies_are_not_limited() {
        let proxies = vec![
            network("10.0.0.0/8").unwrap(),
            network("::1").unwrap(),
            network("192.0.2.9").unwrap(),
        ];
        let peers = Peers::new(1, 1, proxies);
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "::1", "192.0.2.9"] {
            let held = [
                peers.enter(ip(address)).unwrap(),
                peers.enter(ip(address)).unwrap(),
            ];
            assert!(held[0].requests().is_none(), "{address}");
        }
        assert!(network("proxy.example").is_none() && network("10.0.0.0/33").is_none());
    }
}
