//! Settings of the export.

use std::path::PathBuf;
use std::time::Duration;

use helmdeck_core::duration::text;
use serde::Deserialize;
use url::Url;

/// Encoding of OTLP over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Protocol {
    /// Binary protobuf, which every collector reads.
    #[serde(rename = "http/protobuf")]
    Protobuf,
    /// JSON.
    #[serde(rename = "http/json")]
    Json,
}

impl Protocol {
    /// Reads a protocol by its name in OpenTelemetry.
    ///
    /// # Errors
    /// The names that exist here.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "http/protobuf" => Ok(Self::Protobuf),
            "http/json" => Ok(Self::Json),
            _ => Err("must be \"http/protobuf\" or \"http/json\"".to_owned()),
        }
    }

    #[cfg(feature = "export")]
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

/// Settings of the export, `[telemetry]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Base URL of the collector; `/v1/traces`, `/v1/metrics` and `/v1/logs` are added. Default
    /// empty: off.
    pub endpoint: String,
    /// Encoding. Default `http/protobuf`.
    pub protocol: Protocol,
    /// File with headers of each request, one `name: value` a line. Default none.
    pub headers_file: PathBuf,
    /// Share of the traces that begin here and are recorded, from 0 to 1. Default 1.
    pub sample_ratio: f64,
    /// `service.name` of the process. Default `helmdeck`.
    pub service_name: String,
    /// Interval at which metrics are sent. Default 60 s.
    #[serde(with = "text")]
    pub interval: Duration,
    /// Time limit of one request. Default 10 s.
    #[serde(with = "text")]
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            protocol: Protocol::Protobuf,
            headers_file: PathBuf::new(),
            sample_ratio: 1.0,
            service_name: "helmdeck".to_owned(),
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Longest base URL, in bytes.
const MAX_URL_BYTES: usize = 2048;

impl Config {
    /// Checks all values.
    ///
    /// # Errors
    /// The first wrong one. It never repeats the URL, which may hold a password.
    pub fn validate(&self) -> Result<(), String> {
        if !self.endpoint.is_empty() {
            self.base_url()?;
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err("sample_ratio must be from 0 to 1".to_owned());
        }
        if self.service_name.is_empty() {
            return Err("service_name must not be empty".to_owned());
        }
        if self.interval < Duration::from_secs(1) || self.timeout.is_zero() {
            return Err("interval must be at least 1s, and timeout more than 0s".to_owned());
        }
        Ok(())
    }

    /// Returns the base URL.
    ///
    /// # Errors
    /// What it must be.
    pub(crate) fn base_url(&self) -> Result<Url, String> {
        let form = "endpoint must be an http or https address without a user or password, like \"http://127.0.0.1:4318\"";
        let url = Url::parse(&self.endpoint).map_err(|_| form.to_owned())?;
        let plain = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none();
        let bare = url.query().is_none()
            && url.fragment().is_none()
            && self.endpoint.len() <= MAX_URL_BYTES;
        if plain && bare && url.has_host() {
            Ok(url)
        } else {
            Err(form.to_owned())
        }
    }
}

/// Returns the URL of one signal below the base (OTLP exporter specification, "Endpoint URLs for
/// OTLP/HTTP").
#[cfg(feature = "export")]
pub(crate) fn signal_url(base: &Url, signal: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!(
        "{}/v1/{signal}",
        base.path().trim_end_matches('/')
    ));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_plain_urls() {
        let with = |endpoint: &str| Config {
            endpoint: endpoint.to_owned(),
            ..Config::default()
        };
        for good in ["", "http://localhost:4318", "https://otlp.example/base/"] {
            assert_eq!(with(good).validate(), Ok(()), "{good}");
        }
        for wrong in [
            "localhost:4318",
            "grpc://x",
            "http://u:canary@x",
            "http://x?a=b",
            "http://",
        ] {
            let message = with(wrong).validate().unwrap_err();
            assert!(
                message.contains("endpoint must be") && !message.contains("canary"),
                "{message}"
            );
        }
    }

    #[cfg(feature = "export")]
    #[test]
    fn signals_are_below_the_base() {
        let url = |base: &str| signal_url(&Url::parse(base).unwrap(), "traces").to_string();
        assert_eq!(
            url("http://localhost:4318"),
            "http://localhost:4318/v1/traces"
        );
        assert_eq!(
            url("https://otlp.example/base/"),
            "https://otlp.example/base/v1/traces"
        );
    }
}
