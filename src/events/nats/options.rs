//! Options of a NATS connection, and their checks.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use helmdeck_egress::Egress;
use url::Url;

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
            stream: STREAM.to_owned(),
            subjects: vec![subjects.into()],
        }
    }

    /// Checks the options, and asks the guard for the server. A message repeats no more of the URL
    /// than its host: it may hold a password.
    pub(super) fn check(&self, guard: &Egress) -> Result<(), SinkError> {
        let refuse = |why: &str| Err(SinkError::Settings(why.to_owned()));
        let Ok(url) = Url::parse(&self.url) else {
            return refuse(
                "the URL of the event server is none; it looks like nats://127.0.0.1:4222",
            );
        };
        if !matches!(url.scheme(), "nats" | "tls") {
            return refuse("the URL of the event server begins with nats:// or tls://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(
                "the URL of the event server must not hold credentials; name a file with them",
            );
        }
        if url.host().is_none() {
            return refuse("the URL of the event server names no host");
        }
        guard
            .check_server(&url)
            .map_err(|error| SinkError::Settings(format!("the event server: {error}")))?;
        if self.subjects.is_empty() || self.stream.is_empty() {
            return refuse("the stream of events needs a name and subjects");
        }
        Ok(())
    }

    /// Checks that the certificates can be read.
    pub(super) fn check_certificates(&self) -> Result<(), SinkError> {
        let Some(path) = &self.certificates else {
            return Ok(());
        };
        let refuse = |error: std::io::Error| {
            SinkError::Settings(format!("the certificates in {}: {error}", path.display()))
        };
        File::open(path).map(drop).map_err(refuse)
    }

    /// Reads the credentials.
    pub(super) fn credentials(&self) -> Result<Option<String>, SinkError> {
        self.credentials.as_deref().map(read).transpose()
    }
}

fn read(path: &Path) -> Result<String, SinkError> {
    let refuse =
        |why: String| SinkError::Settings(format!("the credentials in {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refuse(error.to_string()))?;
    let mut text = String::new();
    file.take(MOST_CREDENTIALS + 1)
        .read_to_string(&mut text)
        .map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > MOST_CREDENTIALS {
        return Err(refuse(format!("longer than {MOST_CREDENTIALS} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> NatsOptions {
        NatsOptions::new(url, "sx9.forge.memory.>")
    }

    fn guard(named: &str) -> Egress {
        Egress::new(helmdeck_egress::Config::default()).naming(&Url::parse(named).unwrap())
    }

    #[test]
    fn only_the_server_that_the_guard_names_is_reached() {
        let servers = [
            "nats://127.0.0.1:4222",
            "nats://localhost",
            "tls://[::1]:4222",
            "nats://10.0.0.1",
            "nats://demo.nats.io",
        ];
        for named in servers {
            for asked in servers {
                assert_eq!(
                    options(asked).check(&guard(named)).is_ok(),
                    asked == named,
                    "{asked} of {named}"
                );
            }
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
            let error = options(wrong)
                .check(&guard("nats://127.0.0.1"))
                .unwrap_err();
            assert!(!error.to_string().contains("hunter22"), "{error}");
        }
    }

    #[test]
    fn credentials_are_read_from_a_file_of_bounded_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("creds");
        let given = NatsOptions {
            credentials: Some(path.clone()),
            ..options("nats://localhost")
        };
        assert!(
            given
                .credentials()
                .unwrap_err()
                .to_string()
                .contains("creds"),
            "there is no file yet"
        );
        std::fs::write(&path, "jwt").unwrap();
        assert_eq!(given.credentials().unwrap().as_deref(), Some("jwt"));
        std::fs::write(&path, "x".repeat(64 * 1024 + 1)).unwrap();
        assert!(given.credentials().is_err());
    }
}
