//! Options of a NATS connection, and their checks.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use url::{Host, Url};

use crate::sink::SinkError;

/// Default name of the stream.
pub const STREAM: &str = "FORGE_MEMORY";

/// The largest file of credentials that is read, in bytes.
const MOST_CREDENTIALS: u64 = 64 * 1024;

/// Options of a NATS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsOptions {
    /// Server URL: `nats://host:port` or, encrypted, `tls://host:port`. Default port 4222.
    ///
    /// It must not contain a password.
    pub url: String,
    /// The file with the credentials (`.creds`: a JWT and a seed); none by default.
    pub credentials: Option<PathBuf>,
    /// A file with certificates (PEM) to trust; by default those of the system.
    pub certificates: Option<PathBuf>,
    /// Whether the server may be on another machine. Default false.
    pub remote: bool,
    /// The name of the stream; [`STREAM`] by default.
    pub stream: String,
    /// The subjects that the stream holds, should it have to be made: `sx9.forge.memory.>`.
    pub subjects: Vec<String>,
}

impl NatsOptions {
    /// Makes the usual options for a server, and the subjects its stream holds.
    #[must_use]
    pub fn new(url: impl Into<String>, subjects: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credentials: None,
            certificates: None,
            remote: false,
            stream: STREAM.to_owned(),
            subjects: vec![subjects.into()],
        }
    }

    /// Checks the options. A message never repeats the URL, which may hold a password.
    pub(super) fn check(&self) -> Result<(), SinkError> {
        let refuse = |why: &str| Err(SinkError::Settings(why.to_owned()));
        let Ok(url) = Url::parse(&self.url) else {
            return refuse("the URL of the event server is none; it looks like nats://127.0.0.1:4222");
        };
        if !matches!(url.scheme(), "nats" | "tls") {
            return refuse("the URL of the event server begins with nats:// or tls://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("the URL of the event server must not hold credentials; name a file with them");
        }
        let Some(host) = url.host() else {
            return refuse("the URL of the event server names no host");
        };
        if !self.remote && !is_this_machine(&host) {
            return refuse("the event server is on another machine, which has to be allowed");
        }
        if self.subjects.is_empty() || self.stream.is_empty() {
            return refuse("the stream of events needs a name and subjects");
        }
        Ok(())
    }

    /// Checks that the certificates can be read.
    pub(super) fn check_certificates(&self) -> Result<(), SinkError> {
        let Some(path) = &self.certificates else { return Ok(()) };
        let refuse =
            |error: std::io::Error| SinkError::Settings(format!("the certificates in {}: {error}", path.display()));
        File::open(path).map(drop).map_err(refuse)
    }

    /// Reads the credentials.
    pub(super) fn credentials(&self) -> Result<Option<String>, SinkError> {
        self.credentials.as_deref().map(read).transpose()
    }
}

fn read(path: &Path) -> Result<String, SinkError> {
    let refuse = |why: String| SinkError::Settings(format!("the credentials in {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refuse(error.to_string()))?;
    let mut text = String::new();
    file.take(MOST_CREDENTIALS + 1).read_to_string(&mut text).map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > MOST_CREDENTIALS {
        return Err(refuse(format!("longer than {MOST_CREDENTIALS} bytes")));
    }
    Ok(text)
}

fn is_this_machine(host: &Host<&str>) -> bool {
    match host {
        // The parser reads an address as one for the schemes it knows alone.
        Host::Domain(name) => name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback),
        Host::Ipv4(address) => is_loopback(IpAddr::V4(*address)),
        Host::Ipv6(address) => is_loopback(IpAddr::V6(*address)),
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> NatsOptions {
        NatsOptions::new(url, "sx9.forge.memory.>")
    }

    #[test]
    fn remote_servers_need_permission() {
        for here in
            ["nats://127.0.0.1:4222", "nats://localhost", "nats://LOCALHOST:1", "tls://[::1]:4222", "nats://127.9.9.9"]
        {
            assert_eq!(options(here).check(), Ok(()), "{here}");
        }
        for away in [
            "nats://10.0.0.1:4222",
            "nats://demo.nats.io",
            "nats://0.0.0.0:4222",
            "nats://localhost.example",
            "nats://127.0.0.1.example",
            "tls://[2001:db8::1]",
        ] {
            assert!(options(away).check().is_err(), "{away}");
            let allowed = NatsOptions { remote: true, ..options(away) };
            assert_eq!(allowed.check(), Ok(()), "{away}");
        }
    }

    #[test]
    fn a_url_with_a_password_is_refused_and_not_repeated() {
        for wrong in [
            "nats://me:hunter22@127.0.0.1",
            "nats://hunter22@127.0.0.1",
            "hunter22",
            "http://127.0.0.1/hunter22",
            "nats:///hunter22",
        ] {
            let error = options(wrong).check().unwrap_err();
            assert!(!error.to_string().contains("hunter22"), "{error}");
        }
    }

    #[test]
    fn credentials_are_read_from_a_file_of_bounded_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("creds");
        let given = NatsOptions { credentials: Some(path.clone()), ..options("nats://localhost") };
        assert!(given.credentials().unwrap_err().to_string().contains("creds"), "there is no file yet");
        std::fs::write(&path, "jwt").unwrap();
        assert_eq!(given.credentials().unwrap().as_deref(), Some("jwt"));
        std::fs::write(&path, "x".repeat(64 * 1024 + 1)).unwrap();
        assert!(given.credentials().is_err());
    }
}
