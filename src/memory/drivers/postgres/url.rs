//! URL of a PostgreSQL store: server, user, and whether the connection must be encrypted.
//!
//! No message and no `Debug` output holds the password.

use std::net::IpAddr;
use std::path::PathBuf;

use helmdeck_core::text::is_percent_encoded;
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{Result, StoreError};

/// Parameters that the driver reads itself; tokio-postgres reads the rest.
const OPTIONS: &str = "options";
const SSL_MODE: &str = "sslmode";
const ROOT_CERTIFICATE: &str = "sslrootcert";

/// The parameters that may follow in a URL.
const PARAMETERS: &[&str] = &[
    SSL_MODE,
    ROOT_CERTIFICATE,
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    OPTIONS,
    "password",
    "port",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Protection of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Protection {
    /// None: plain TCP or a unix socket.
    None,
    /// By TLS, with a certificate that the system's authorities vouch for.
    System,
    /// By TLS, with a certificate that those of a file vouch for.
    File(PathBuf),
}

/// A parsed URL.
pub(super) struct Target {
    /// Server, user and database.
    pub(super) config: Config,
    /// Protection of the connection.
    pub(super) protection: Protection,
    /// The URL's `options`. Not in `config`, because a pooler in transaction mode refuses them.
    options: String,
}

helmdeck_core::redacted_debug!(Target, this => protection = this.protection);

impl Target {
    /// Parses a URL; connects to nothing.
    ///
    /// # Errors
    /// `BadUrl`, which repeats nothing of the URL but the names of its parameters.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (rest, ours) = split(url)?;
        let mut config: Config = rest.parse().map_err(|_| {
            bad("it must look like postgres://user:password@host:5432/database; special characters in its parts must be \
                 percent-encoded")
        })?;
        let names = config.get_hosts().iter().filter_map(|host| {
            if let Host::Tcp(name) = host {
                Some(name)
            } else {
                None
            }
        });
        if names
            .into_iter()
            .any(|name| name.contains(['@', '?', '#', ' ']) || name.is_empty())
        {
            return Err(bad(
                "it names a host that cannot be; special characters in the password must be percent-encoded",
            ));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host("localhost");
        }
        let protection = protection(&ours, is_local(&config))?;
        config.ssl_mode(if protection == Protection::None {
            SslMode::Disable
        } else {
            SslMode::Require
        });
        if config.get_application_name().is_none() {
            config.application_name("helmdeck");
        }
        Ok(Self {
            config,
            protection,
            options: ours.options,
        })
    }

    /// Returns the settings of the URL's `options`, in their order.
    ///
    /// # Errors
    /// `BadUrl` if an option is not a setting.
    pub(super) fn settings(&self) -> Result<Vec<(String, String)>> {
        let mut words = words(&self.options).into_iter();
        let mut settings = Vec::new();
        while let Some(word) = words.next() {
            let setting = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
                Some("") => words.next(),
                Some(setting) => Some(setting.to_owned()),
                None => None,
            };
            let (name, value) = setting
                .as_deref()
                .and_then(|setting| setting.split_once('='))
                .ok_or_else(|| bad("its options are not settings like -c name=value"))?;
            settings.push((name.to_owned(), value.to_owned()));
        }
        Ok(settings)
    }

    /// Returns hosts and database, which are safe to show.
    pub(super) fn shown(&self) -> String {
        let ports = self.config.get_ports();
        let port = |index: usize| {
            ports
                .get(index)
                .or_else(|| ports.first())
                .copied()
                .unwrap_or(5432)
        };
        let named = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(index, host)| match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(index)),
                Host::Tcp(name) => format!("{name}:{}", port(index)),
                #[cfg(unix)]
                Host::Unix(folder) => folder.display().to_string(),
            });
        let hosts = named.collect::<Vec<_>>().join(",");
        let database = self
            .config
            .get_dbname()
            .or_else(|| self.config.get_user())
            .unwrap_or_default();
        format!("postgres://{hosts}/{database}")
    }
}

/// The parameters that are understood here.
#[derive(Debug, Default)]
struct Ours {
    options: String,
    ssl_mode: Option<String>,
    root_certificate: Option<String>,
}

/// Splits off the parameters that only this driver reads.
fn split(url: &str) -> Result<(String, Ours)> {
    let (_, rest) = url.split_once(':').unwrap_or_default();
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| bad("\"//\" must follow the scheme"))?;
    // A password may hold a "?", so the parameters begin after the host.
    let host = rest.find('@').map_or(0, |at| at + 1);
    let Some(question) = rest[host..].find('?').map(|at| host + at) else {
        return Ok((format!("postgres://{rest}"), Ours::default()));
    };
    let mut ours = Ours::default();
    let mut others = Vec::new();
    for parameter in rest[question + 1..]
        .split('&')
        .filter(|parameter| !parameter.is_empty())
    {
        let (name, value) = parameter
            .split_once('=')
            .ok_or_else(|| bad("a parameter has no value"))?;
        match name {
            OPTIONS => ours.options = decoded(value)?,
            SSL_MODE => ours.ssl_mode = Some(value.to_owned()),
            ROOT_CERTIFICATE => ours.root_certificate = Some(decoded(value)?),
            "sslcert" | "sslkey" | "sslpassword" => {
                return Err(bad(
                    "certificates of clients (sslcert, sslkey) are not supported; use a password",
                ));
            }
            name if PARAMETERS.contains(&name) => others.push(parameter),
            _ => {
                return Err(bad(&format!(
                    "it has an unknown parameter; there are {}",
                    PARAMETERS.join(", ")
                )));
            }
        }
    }
    Ok((
        format!("postgres://{}?{}", &rest[..question], others.join("&")),
        ours,
    ))
}

fn protection(ours: &Ours, is_local: bool) -> Result<Protection> {
    let verified = || match &ours.root_certificate {
        Some(file) if file != "system" => Protection::File(file.into()),
        _ => Protection::System,
    };
    match ours.ssl_mode.as_deref() {
        Some("disable") if ours.root_certificate.is_some() => {
            Err(bad("sslmode=disable and sslrootcert contradict each other"))
        }
        Some("disable") => Ok(Protection::None),
        // Encryption without a verified peer does not protect from an attacker on the path.
        Some("require" | "verify-ca" | "verify-full") => Ok(verified()),
        Some(_) => Err(bad(
            "sslmode is one of disable, require, verify-ca, verify-full; the last three all check the server's certificate and name",
        )),
        None if ours.root_certificate.is_none() && is_local => Ok(Protection::None),
        None => Ok(verified()),
    }
}

/// Splits options at spaces; a backslash keeps what follows it.
fn words(options: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        if character.is_ascii_whitespace() {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            word.extend(if character == '\\' {
                characters.next()
            } else {
                Some(character)
            });
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns whether every host is on this machine.
fn is_local(config: &Config) -> bool {
    // An address, where given, is what is connected to; the host is then only a name.
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().all(IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

fn decoded(text: &str) -> Result<String> {
    if !is_percent_encoded(text) {
        return Err(bad("a \"%\" is not followed by two hex digits"));
    }
    let text = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| bad("a parameter is not UTF-8"))?;
    Ok(text.into_owned())
}

fn bad(why: &str) -> StoreError {
    StoreError::BadUrl(format!(
        "the URL of the PostgreSQL store is not understood: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection_of(url: &str) -> Protection {
        Target::parse(url).unwrap().protection
    }

    #[test]
    fn only_local_connections_default_to_plain() {
        for local in [
            "postgres://u:p@localhost/d",
            "postgresql://127.0.0.1:5433,[::1]:5434/d",
            "postgres://u@%2Fvar%2Frun/d",
            "postgres:///d?host=/var/run",
            "postgres://db.example/d?hostaddr=127.0.0.1",
            "postgres://",
        ] {
            assert_eq!(protection_of(local), Protection::None, "{local}");
        }
        for remote in [
            "postgres://u:p@db.example/d",
            "postgres://10.0.0.1/d",
            "postgres://localhost,db.example/d",
            "postgres://localhost/d?hostaddr=10.0.0.1",
            "postgres://localhost.db.example/d",
            "postgres://localhost/d?sslmode=require",
            "postgres://db.example/d?sslmode=verify-full&sslrootcert=system",
        ] {
            assert_eq!(protection_of(remote), Protection::System, "{remote}");
        }
        assert_eq!(
            protection_of("postgres://db.example/d?sslmode=disable"),
            Protection::None
        );
        let file = Protection::File("/a b.pem".into());
        assert_eq!(
            protection_of("postgres://localhost/d?sslrootcert=/a%20b.pem"),
            file
        );
        assert_eq!(
            protection_of(
                "postgres://x/d?application_name=y&sslmode=verify-ca&sslrootcert=/a%20b.pem"
            ),
            file
        );
    }

    #[test]
    fn the_rest_of_the_url_is_that_of_postgresql() {
        let target = Target::parse(
            "postgresql://u%40:p%3F?@a:1,b:2/d%2F?options=-csearch_path%3Ds&connect_timeout=2",
        )
        .unwrap();
        assert_eq!(target.config.get_user(), Some("u@"));
        assert_eq!(target.config.get_password(), Some(&b"p??"[..]));
        assert_eq!(
            target.config.get_hosts(),
            [Host::Tcp("a".into()), Host::Tcp("b".into())]
        );
        assert_eq!(target.config.get_ports(), [1, 2]);
        assert_eq!(target.config.get_dbname(), Some("d/"));
        assert_eq!(
            target.settings().unwrap(),
            [("search_path".to_owned(), "s".to_owned())]
        );
        assert_eq!(target.shown(), "postgres://a:1,b:2/d/");
        assert_eq!(
            Target::parse("postgres://me@[::1]:7/").unwrap().shown(),
            "postgres://[::1]:7/me"
        );
    }

    #[test]
    fn options_are_read_as_settings() {
        let settings = |options: &str| {
            Target {
                options: options.to_owned(),
                ..Target::parse("postgres://h/d").unwrap()
            }
            .settings()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(settings("").unwrap(), []);
        assert_eq!(
            settings("-csearch_path=a,b").unwrap(),
            [pair("search_path", "a,b")]
        );
        let three = settings(" -c a=1  --b.c=x=y -c d=\\ e\\\\").unwrap();
        assert_eq!(
            three,
            [pair("a", "1"), pair("b.c", "x=y"), pair("d", " e\\")]
        );
        for bad in ["-c", "-e x", "x=y", "-c x"] {
            assert!(matches!(settings(bad), Err(StoreError::BadUrl(_))), "{bad}");
        }
    }

    #[test]
    fn bad_urls_are_refused_without_secrets() {
        for url in [
            "postgres:canary",
            "postgres://u:canary@h:port/d",
            "postgres://u:canary@ss@h/d",
            "postgres://u:canary@h/d?canary=1",
            "postgres://u:canary@h/d?canary",
            "postgres://u:canary@h/d?sslmode=canary",
            "postgres://u:canary@h/d?sslmode=prefer",
            "postgres://u:canary@h/d?sslcert=canary",
            "postgres://u:canary@h/d?sslmode=disable&sslrootcert=/canary",
            "postgres://u:canary@h/d?connect_timeout=canary",
            "postgres://u:canary%ff@h%ff/d",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(
                matches!(&error, StoreError::BadUrl(message) if !message.contains("canary")),
                "{url}: {error}"
            );
        }
        let target = Target::parse("postgres://u:canary@h/d?password=canary").unwrap();
        assert!(!format!("{target:?} {}", target.shown()).contains("canary"));
    }
}
