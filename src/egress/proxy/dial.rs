//! Connects to a host and port: checked, resolved once, and only to a checked address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use url::Host;

use super::Trouble;
use crate::resolver::{self, Lookup, Unresolved};
use crate::rules::Rules;

/// The way to targets.
pub(super) struct Dial {
    pub(super) rules: Arc<Rules>,
    pub(super) lookup: Lookup,
    /// Timeout of one address.
    pub(super) timeout: Duration,
}

impl Dial {
    /// Connects to the first address that answers.
    pub(super) async fn connect(
        &self,
        host: &Host<String>,
        port: u16,
    ) -> Result<TcpStream, Trouble> {
        self.rules
            .check_target(host, port)
            .map_err(Trouble::Refused)?;
        for address in self.addresses(host).await? {
            // Why it does not answer is the network's business; the next one may.
            if let Ok(Ok(stream)) =
                tokio::time::timeout(self.timeout, TcpStream::connect((address, port))).await
            {
                // Without this each small message of a handshake waits for the one before; it works
                // without, too.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
        }
        Err(Trouble::Unreachable)
    }

    async fn addresses(&self, host: &Host<String>) -> Result<Vec<IpAddr>, Trouble> {
        let name = match host {
            Host::Ipv4(address) => return Ok(vec![IpAddr::V4(*address)]),
            Host::Ipv6(address) => return Ok(vec![IpAddr::V6(*address)]),
            Host::Domain(name) => name,
        };
        let resolving = resolver::resolve(&self.rules, &self.lookup, name);
        match tokio::time::timeout(self.timeout, resolving).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Err(Unresolved::Refused(refused))) => Err(Trouble::Refused(refused)),
            Ok(Ok(_) | Err(Unresolved::Failed(_))) | Err(_) => Err(Trouble::Unresolved),
        }
    }
}
