//! Proxy for external programs (git, sandboxed commands): they reach only what the guard allows.
//!
//! It speaks HTTP/1.1: `CONNECT host:port` opens a tunnel, and a request with an absolute `http:`
//! address is passed on. Every target goes through the guard's own rules, and a connection goes to
//! an address that was checked.

mod dial;
mod gateway;
mod tunnel;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::{Host, Url};

use crate::Egress;
use crate::allowed::plain;
use crate::error::Refused;

pub use gateway::Gateway;

/// The user that a program names to the proxy; only the password counts.
const USER: &str = "helmdeck";

/// What a proxy lets through, out of what the guard allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One host at one port.
    Only(Host<String>, u16),
    /// Everything.
    Any,
}

impl Target {
    /// Returns one host at one port; the name in any spelling of its case, with or without a final
    /// dot.
    #[must_use]
    pub fn only(host: Host<String>, port: u16) -> Self {
        Self::Only(settled(host), port)
    }

    fn admits(&self, host: &Host<String>, port: u16) -> bool {
        match self {
            Self::Only(only, only_port) => only == host && *only_port == port,
            Self::Any => true,
        }
    }
}

fn settled(host: Host<String>) -> Host<String> {
    match host {
        Host::Domain(name) => Host::Domain(plain(&name)),
        address => address,
    }
}

/// The bounds of a proxy.
#[derive(Debug, Clone, Copy)]
pub struct ProxyConfig {
    /// Maximum number of connections at once; more wait. Default 64.
    pub max_connections: usize,
    /// Maximum size of a request's head, in bytes. Default 16 KiB, minimum 8 KiB.
    pub max_header_bytes: usize,
    /// Timeout for the head of a request. Default 10 s.
    pub header_timeout: Duration,
    /// Timeout for silence of both sides. Default 2 min.
    ///
    /// A silent tunnel ends after this, or twice as long.
    pub idle_timeout: Duration,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            max_connections: 64,
            max_header_bytes: 16 << 10,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
        }
    }
}

/// Why a proxy did not reach a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// It may not be reached.
    Refused(Refused),
    /// Its name has no address.
    Unresolved,
    /// The host does not answer.
    Unreachable,
}

/// A proxy on a port of the loopback interface, behind a random password.
///
/// It ends, with all its connections, when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    password: String,
    gateway: Gateway,
    _end: DropGuard,
}

impl Proxy {
    /// Returns where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the value of the header `Proxy-Authorization` that its requests need.
    ///
    /// It goes into an environment variable; never into an argument, which every user of this
    /// machine can read.
    #[must_use]
    pub fn authorization(&self) -> String {
        authorization(&self.password)
    }

    /// Returns its address with its password, as programs take it from a variable (`http_proxy`).
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{USER}:{}@{}", self.password, self.address)
    }

    /// Returns why a target was last not reached, if one was not.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.gateway.trouble()
    }
}

helmdeck_core::redacted_debug!(Proxy, this => address = this.address);

impl Egress {
    /// Starts a proxy on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If there is no port, or no randomness.
    pub async fn proxy(&self, target: Target, config: ProxyConfig) -> io::Result<Proxy> {
        let password = password()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let end = CancellationToken::new();
        let gateway = Gateway::new(self, target, config, Some(&password), end.clone());
        tokio::spawn(gateway.clone().listen(listener));
        Ok(Proxy {
            address,
            password,
            gateway,
            _end: end.drop_guard(),
        })
    }

    /// Makes a proxy that serves connections handed to it, for a socket that only one program can
    /// reach.
    ///
    /// It asks for no password. Its tunnels end with `end`.
    #[must_use]
    pub fn gateway(&self, target: Target, config: ProxyConfig, end: CancellationToken) -> Gateway {
        Gateway::new(self, target, config, None, end)
    }
}

/// Writes a password as HTTP's basic authentication does (RFC 7617).
fn authorization(password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{USER}:{password}")))
}

fn password() -> io::Result<String> {
    let mut bytes = [0; 24];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(helmdeck_core::hex(&bytes))
}

/// Reads `host:port` as a request's target writes it.
fn target_of(authority: &str) -> Option<(Host<String>, u16)> {
    // A URL parser knows every spelling of an address; it must not see more than host and port.
    if authority.contains(['/', '?', '#', '@', '\\']) {
        return None;
    }
    let url = Url::parse(&format!("http://{authority}/")).ok()?;
    let host = settled(url.host()?.to_owned());
    let written = authority
        .rsplit_once(':')
        .filter(|(_, port)| !port.contains(']'))?;
    Some((host, written.1.parse().ok()?))
}

#[cfg(test)]
mod tests;
