//! `helmdeck health`: asks a server whether it is ready, for health checks of containers and for
//! scripts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;
use url::Url;

use crate::args::{Global, HealthArgs};
use crate::config;
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::output::Output;
use crate::running;

/// Limit of an answer in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// Asks `/readyz` and prints the checks.
///
/// # Errors
/// Exit 1 if the server does not answer or is not ready; exit 2 for a URL that is not `http`; a
/// configuration failure.
pub(crate) fn run(
    arguments: &HealthArgs,
    global: &Global,
    env: &ProcessEnvironment,
    output: &Output,
) -> Result<()> {
    let (address, host) = match &arguments.url {
        Some(url) => named(url)?,
        None => {
            let settings = config::load(global.config.as_deref(), Vec::new(), env)?.settings()?;
            let address = running::address(&settings);
            (address, address.to_string())
        }
    };
    let (status, body) = ask(address, &host, arguments.timeout).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("http://{host} does not answer: {error}"),
        )
        .with_hint("start the server with `helmdeck serve`, or name it with --url")
    })?;
    let value: Value = serde_json::from_str(&body).unwrap_or_default();
    let Some(state) = value["status"].as_str().map(str::to_owned) else {
        return Err(Failure::new(
            Exit::Failed,
            format!("http://{host} is not a helmdeck server (status {status})"),
        ));
    };
    output.either(&value, || {
        let checks = value["checks"].as_object().into_iter().flatten();
        let wrong = checks.filter(|(_, result)| *result != "ok");
        let wrong = wrong
            .map(|(name, result)| format!("\n{name}: {}", result.as_str().unwrap_or_default()));
        format!("{state}{}", wrong.collect::<String>())
    })?;
    if status == 200 {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failed))
    }
}

/// Returns the address of a URL, and its host with the port.
pub(super) fn named(url: &Url) -> Result<(SocketAddr, String)> {
    let wrong = || {
        Failure::usage(format!("{url} is not http://host:port")).with_hint("TLS is not spoken here")
    };
    let (Some(host), Some(port), "http") =
        (url.host_str(), url.port_or_known_default(), url.scheme())
    else {
        return Err(wrong());
    };
    let shown = format!("{host}:{port}");
    let found = shown
        .to_socket_addrs()
        .map_err(|error| Failure::new(Exit::Failed, format!("{host}: {error}")))?;
    let address = found.into_iter().next().ok_or_else(wrong)?;
    Ok((address, shown))
}

/// Asks for readiness and returns the status and the body.
pub(super) fn ask(
    address: SocketAddr,
    host: &str,
    timeout: Duration,
) -> std::io::Result<(u16, String)> {
    send(
        address,
        host,
        &Asked {
            method: "GET",
            path: "/readyz",
            token: None,
        },
        timeout,
    )
}

/// A request without a body.
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Bearer token.
    pub(super) token: Option<&'a str>,
}

/// Sends a request and returns the status and the body.
pub(super) fn send(
    address: SocketAddr,
    host: &str,
    asked: &Asked<'_>,
    timeout: Duration,
) -> std::io::Result<(u16, String)> {
    let timeout = timeout.max(Duration::from_millis(1));
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let Asked {
        method,
        path,
        token,
    } = asked;
    let token = token
        .map(|token| format!("Authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{token}Connection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let wrong = || std::io::Error::other("its answer is not HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(wrong)?;
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_taken() {
        assert_eq!(
            named(&"http://127.0.0.1:1/x".parse().unwrap()).unwrap().1,
            "127.0.0.1:1"
        );
        assert_eq!(
            named(&"http://[::1]".parse().unwrap()).unwrap().1,
            "[::1]:80"
        );
        for wrong in ["https://127.0.0.1", "file:///x", "unix:x"] {
            assert_eq!(
                named(&wrong.parse().unwrap()).unwrap_err().code(),
                Exit::Usage as u8,
                "{wrong}"
            );
        }
    }
}
