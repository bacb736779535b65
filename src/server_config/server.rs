//! Settings of the server. They are read by the CLI; nothing here reads files or the environment.

use std::net::SocketAddr;
use std::time::Duration;

use helmdeck_core::duration::{size, text};
use serde::{Deserialize, Deserializer, Serialize};

use crate::names::{host_name, is_loopback, network, origin_authority};

/// The settings of the server; durations and sizes are written as text (`"30s"`, `"1MiB"`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address to listen on; `127.0.0.1:7700` by default.
    ///
    /// Without authentication it must be a loopback address. Written `address:port`;
    /// `localhost:port`, `:port` and `port` mean the loopback address 127.0.0.1.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Host names, besides those of this machine, that requests may use: `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// Web origins, besides the server's own, whose pages may call the server:
    /// `https://name[:port]`.
    ///
    /// They may read the answers too.
    pub allowed_origins: Vec<String>,
    /// Limit of a request body; 1 MiB by default. A larger one is refused before it is read.
    #[serde(with = "size")]
    pub max_body_bytes: u64,
    /// Limit of a request head; 32 KiB by default, at least 8 KiB.
    #[serde(with = "size")]
    pub max_header_bytes: u64,
    /// Limit of open connections; 1024 by default.
    ///
    /// Connections over the limit are answered on `/healthz` and `/readyz` only.
    pub max_connections: usize,
    /// Limit of open connections per peer; 512 by default.
    ///
    /// A peer is an IPv4 address, or an IPv6 network of 64 bits.
    pub max_connections_per_peer: usize,
    /// Limit of requests at work at once; 256 by default.
    ///
    /// Requests over the limit are answered `overloaded`. A request whose body is still arriving
    /// does not count. With authentication one peer gets at most half of the limit.
    pub max_requests: usize,
    /// Limit of requests per caller; 0 (the default) = a quarter of `max_requests`.
    ///
    /// Counts requests at work and requests whose body is still arriving. Without authentication
    /// there is one caller, and no such limit.
    pub max_requests_per_caller: usize,
    /// Addresses and networks of proxies. They have no limit per peer: many callers come through
    /// them.
    pub proxies: Vec<String>,
    /// Limit of requests per second and caller, from all replicas; 0 (the default) = no limit.
    pub rate_per_second: u32,
    /// Requests that a caller may make at once before the rate applies; 0 (the default) = one
    /// second's.
    pub rate_burst: u32,
    /// Time limit of a call; 120 s by default.
    #[serde(with = "text")]
    pub request_deadline: Duration,
    /// Time limit for a complete request head, also between two requests; 30 s by default.
    #[serde(with = "text")]
    pub header_timeout: Duration,
    /// Time limit for a request body to arrive; 30 s by default.
    #[serde(with = "text")]
    pub body_timeout: Duration,
    /// Limit of open streams of job events; 256 by default.
    ///
    /// Streams over the limit are answered `overloaded`.
    pub max_event_streams: usize,
    /// How long a server that is told to stop answers as before, with `/readyz` at 503; 0 by
    /// default.
    ///
    /// Balancers need this time to notice.
    #[serde(with = "text")]
    pub drain_for: Duration,
    /// Time limit for running requests and jobs to finish during a shutdown; 30 s by default.
    #[serde(with = "text")]
    pub drain_timeout: Duration,
    /// Number of servers that share the traffic; 0 (the default) = those that share the system
    /// database.
    ///
    /// Each enforces its part of `rate_per_second`, `rate_burst` and a set
    /// `max_requests_per_caller`.
    pub replicas: usize,
    /// Name of this server among its replicas; empty (the default) = made of the host's name and
    /// the data folder.
    pub replica: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7700)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body_bytes: 1 << 20,
            max_header_bytes: 32 << 10,
            max_connections: 1024,
            max_connections_per_peer: 512,
            max_requests: 256,
            max_requests_per_caller: 0,
            proxies: Vec::new(),
            rate_per_second: 0,
            rate_burst: 0,
            request_deadline: Duration::from_secs(120),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            max_event_streams: 256,
            drain_for: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            replicas: 0,
            replica: String::new(),
        }
    }
}

impl ServerConfig {
    /// Checks the settings against each other and against what the server can do.
    ///
    /// # Errors
    /// A message that names the setting, what is wrong with it and what to do.
    pub fn validate(&self) -> Result<(), String> {
        for (name, value) in [
            ("max_body_bytes", self.max_body_bytes),
            ("max_connections", self.max_connections as u64),
            (
                "max_connections_per_peer",
                self.max_connections_per_peer as u64,
            ),
            ("max_requests", self.max_requests as u64),
        ] {
            if value == 0 {
                return Err(format!(
                    "{name} is 0: the server could answer nothing; give at least 1"
                ));
            }
        }
        if self.max_header_bytes < 8 << 10 {
            return Err("max_header_bytes is too small; give at least \"8KiB\"".to_owned());
        }
        for (name, value) in [
            ("request_deadline", self.request_deadline),
            ("header_timeout", self.header_timeout),
            ("body_timeout", self.body_timeout),
        ] {
            if value.is_zero() {
                return Err(format!(
                    "{name} is 0: every request would time out; give for example \"30s\""
                ));
            }
        }
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.replica.len() > 40 || !self.replica.bytes().all(fits) {
            return Err(format!(
                "replica: {:?} is no name; write up to 40 of a-z, 0-9 and -",
                self.replica
            ));
        }
        for host in &self.allowed_hosts {
            if host_name(host).is_none() {
                return Err(format!(
                    "allowed_hosts: {host:?} is not a host; write \"name\" or \"name:port\""
                ));
            }
        }
        for origin in &self.allowed_origins {
            if origin_authority(origin).is_none() {
                return Err(format!(
                    "allowed_origins: {origin:?} is not an origin; write \"https://name\""
                ));
            }
        }
        for proxy in &self.proxies {
            if network(proxy).is_none() {
                let wanted = "write \"10.0.0.7\" or \"10.0.0.0/8\"";
                return Err(format!(
                    "proxies: {proxy:?} is neither an address nor a network; {wanted}"
                ));
            }
        }
        Ok(())
    }

    /// Returns the limit of open requests per caller.
    #[must_use]
    pub fn requests_per_caller(&self) -> usize {
        match self.max_requests_per_caller {
            0 => self.max_requests.div_ceil(4),
            limit => limit,
        }
    }
}

/// Parses the address to listen on.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let port = text
        .strip_prefix("localhost:")
        .or_else(|| text.strip_prefix(':'))
        .unwrap_or(&text);
    if let Ok(port) = port.parse() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        let wanted = "write address:port, for example \"127.0.0.1:7700\", or localhost:port";
        serde::de::Error::custom(format!("{text:?} is not an address with a port; {wanted}"))
    })
}

/// Validates the address: without authentication only this machine may reach the server.
///
/// # Errors
/// A message that names the address and what to do.
pub fn check_listen(address: SocketAddr, authenticated: bool) -> Result<(), String> {
    if authenticated || is_loopback(address.ip()) {
        return Ok(());
    }
    Err(format!(
        "refusing to listen on {address}: authentication is off, so the server listens on a loopback address only; \
         use 127.0.0.1:{port}, or turn authentication on (api_tokens, jwks or HELMDECK_JWT_SECRET)",
        port = address.port()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_read_back() {
        let config = ServerConfig::default();
        config.validate().unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains(r#""request_deadline":"2m""#), "{text}");
        assert_eq!(serde_json::from_str::<ServerConfig>(&text).unwrap(), config);
    }

    #[test]
    fn sizes_and_durations_are_read_as_text_and_unknown_keys_are_refused() {
        let config: ServerConfig =
            serde_json::from_str(r#"{"max_body_bytes": "2MiB", "drain_timeout": "1m30s"}"#)
                .unwrap();
        assert_eq!(
            (config.max_body_bytes, config.drain_timeout),
            (2 << 20, Duration::from_secs(90))
        );
        assert!(serde_json::from_str::<ServerConfig>(r#"{"drain_timeot": "1s"}"#).is_err());
        assert!(serde_json::from_str::<ServerConfig>(r#"{"drain_timeout": "soon"}"#).is_err());
    }

    #[test]
    fn short_addresses_are_loopback() {
        let listen = |text: &str| {
            let read =
                serde_json::from_value::<ServerConfig>(serde_json::json!({ "listen": text }));
            read.map(|config| config.listen.to_string())
                .map_err(|error| error.to_string())
        };
        for text in ["localhost:7701", ":7701", "7701", "127.0.0.1:7701"] {
            assert_eq!(listen(text).as_deref(), Ok("127.0.0.1:7701"), "{text}");
        }
        assert_eq!(listen("[::1]:1").as_deref(), Ok("[::1]:1"));
        for text in [
            "",
            "localhost",
            "name.example:7701",
            "127.0.0.1",
            ":x",
            "localhost:70000",
        ] {
            let error = listen(text).unwrap_err();
            assert!(error.contains("127.0.0.1:7700"), "{text}: {error}");
        }
    }

    #[test]
    fn public_address_without_auth_is_refused() {
        for address in ["0.0.0.0:7700", "[::]:1", "192.168.1.4:7700"] {
            let message = check_listen(address.parse().unwrap(), false).unwrap_err();
            assert!(
                message.contains(address) && message.contains("127.0.0.1"),
                "{message}"
            );
            check_listen(address.parse().unwrap(), true).unwrap();
        }
        for address in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:7700"] {
            check_listen(address.parse().unwrap(), false).unwrap();
        }
    }

    #[test]
    fn unusable_settings_are_refused() {
        let broken = [
            ServerConfig {
                max_requests: 0,
                ..ServerConfig::default()
            },
            ServerConfig {
                header_timeout: Duration::ZERO,
                ..ServerConfig::default()
            },
            ServerConfig {
                max_header_bytes: 100,
                ..ServerConfig::default()
            },
            ServerConfig {
                allowed_hosts: vec!["https://x".to_owned()],
                ..ServerConfig::default()
            },
            ServerConfig {
                allowed_origins: vec!["x".to_owned()],
                ..ServerConfig::default()
            },
            ServerConfig {
                max_connections_per_peer: 0,
                ..ServerConfig::default()
            },
            ServerConfig {
                replica: "Deck 1".to_owned(),
                ..ServerConfig::default()
            },
            ServerConfig {
                proxies: vec!["proxy.example".to_owned()],
                ..ServerConfig::default()
            },
        ];
        for config in broken {
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
