//! Export of traces, metrics and logs: the settings, the standard `OTEL_*` variables, and the
//! start.
//!
//! `[telemetry]` comes first. What it leaves at its default, the variables of OpenTelemetry may set
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>). Only
//! servers read them.

use std::path::Path;
use std::time::Duration;

use helmdeck_conversation::Conversations;
use helmdeck_core::Tracer;
use helmdeck_engine::Engine;
use helmdeck_telemetry::{Config, Protocol};

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::wire::Setup;

/// Time limit for what still waits when the process ends.
#[cfg(feature = "otlp")]
const LAST_BATCH: Duration = Duration::from_secs(5);

/// The running export; does nothing without an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Export {
    #[cfg(feature = "otlp")]
    telemetry: Option<helmdeck_telemetry::Telemetry>,
}

impl Export {
    /// Starts the export if there is an endpoint.
    ///
    /// # Errors
    /// A configuration failure: a variable or the file of headers cannot be used, or this build has
    /// no export.
    pub(crate) fn start(
        setup: &Setup,
        engine: &Engine,
        conversations: &Conversations,
    ) -> Result<Self> {
        let config = with_variables(&setup.settings.telemetry, &setup.env)?;
        if config.endpoint.is_empty() {
            return Ok(Self::default());
        }
        run(setup, &config, engine, conversations)
    }

    /// Returns what makes spans, `None` if nothing is exported.
    pub(crate) fn tracer(&self) -> Option<Tracer> {
        #[cfg(feature = "otlp")]
        return self
            .telemetry
            .as_ref()
            .map(helmdeck_telemetry::Telemetry::tracer);
        #[cfg(not(feature = "otlp"))]
        None
    }

    /// Sends what still waits.
    pub(crate) async fn finish(&self) {
        #[cfg(feature = "otlp")]
        if let Some(telemetry) = &self.telemetry {
            telemetry.flush(LAST_BATCH).await;
        }
    }
}

#[cfg(feature = "otlp")]
fn run(
    setup: &Setup,
    config: &Config,
    engine: &Engine,
    conversations: &Conversations,
) -> Result<Export> {
    let headers = headers(config, &setup.env)?;
    let resource = resource(config, &setup.env)?;
    let egress = helmdeck_egress::Egress::new(setup.settings.egress.clone());
    let (engine, conversations) = (engine.clone(), conversations.clone());
    let metrics = move || helmdeck_server::metrics(&engine, &conversations);
    let telemetry =
        helmdeck_telemetry::Telemetry::start(config, &resource, &headers, &egress, metrics)
            .map_err(|message| Failure::config(format!("telemetry: {message}")))?;
    telemetry.connect(crate::logging::exported());
    Ok(Export {
        telemetry: Some(telemetry),
    })
}

#[cfg(not(feature = "otlp"))]
fn run(_: &Setup, _: &Config, _: &Engine, _: &Conversations) -> Result<Export> {
    Err(Failure::config(
        "telemetry.endpoint is set, but this helmdeck was built without the feature \"otlp\"",
    ))
}

/// Returns the settings, with the variables of OpenTelemetry for those that are at their default.
fn with_variables(settings: &Config, env: &ProcessEnvironment) -> Result<Config> {
    let mut config = settings.clone();
    let defaults = Config::default();
    let set = |name: &'static str| {
        env.text(name)
            .map(|text| text.map(str::trim).filter(|text| !text.is_empty()))
    };
    let wrong = |name: &str, message: &str| Failure::config(format!("{name}: {message}"));
    if config.endpoint.is_empty()
        && set("OTEL_SDK_DISABLED")? != Some("true")
        && let Some(endpoint) = set("OTEL_EXPORTER_OTLP_ENDPOINT")?
    {
        endpoint.clone_into(&mut config.endpoint);
    }
    if config.endpoint.is_empty() {
        return Ok(config);
    }
    if config.protocol == defaults.protocol
        && let Some(protocol) = set("OTEL_EXPORTER_OTLP_PROTOCOL")?
    {
        let parsed = Protocol::parse(protocol);
        config.protocol =
            parsed.map_err(|message| wrong("OTEL_EXPORTER_OTLP_PROTOCOL", &message))?;
    }
    if config.service_name == defaults.service_name
        && let Some(name) = set("OTEL_SERVICE_NAME")?
    {
        name.clone_into(&mut config.service_name);
    }
    if config
        .sample_ratio
        .total_cmp(&defaults.sample_ratio)
        .is_eq()
        && let Some(sampler) = set("OTEL_TRACES_SAMPLER")?
    {
        config.sample_ratio = ratio(sampler, set("OTEL_TRACES_SAMPLER_ARG")?)
            .map_err(|message| wrong("OTEL_TRACES_SAMPLER", message))?;
    }
    for (name, value, default) in [
        (
            "OTEL_METRIC_EXPORT_INTERVAL",
            &mut config.interval,
            defaults.interval,
        ),
        (
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            &mut config.timeout,
            defaults.timeout,
        ),
    ] {
        if *value == default
            && let Some(text) = set(name)?
        {
            let milliseconds = text
                .parse()
                .map_err(|_| wrong(name, "must be a number of milliseconds"))?;
            *value = Duration::from_millis(milliseconds);
        }
    }
    config
        .validate()
        .map_err(|message| wrong("telemetry", &message))?;
    Ok(config)
}

/// Returns the ratio of a sampler of OpenTelemetry.
fn ratio(sampler: &str, argument: Option<&str>) -> std::result::Result<f64, &'static str> {
    match sampler {
        "always_on" | "parentbased_always_on" => Ok(1.0),
        "always_off" | "parentbased_always_off" => Ok(0.0),
        "traceidratio" | "parentbased_traceidratio" => {
            let ratio = argument
                .map_or(Ok(1.0), str::parse)
                .ok()
                .filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.ok_or("OTEL_TRACES_SAMPLER_ARG must be from 0 to 1")
        }
        _ => Err(
            "must be always_on, always_off or traceidratio, each also with the prefix parentbased_",
        ),
    }
}

/// Returns the headers of each request: from the file, else from the standard variable.
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "nothing is exported")
)]
fn headers(config: &Config, env: &ProcessEnvironment) -> Result<Vec<(String, String)>> {
    if config.headers_file.as_os_str().is_empty() {
        let text = env.text("OTEL_EXPORTER_OTLP_HEADERS")?.unwrap_or_default();
        return pairs(text, '=')
            .map_err(|message| Failure::config(format!("OTEL_EXPORTER_OTLP_HEADERS: {message}")));
    }
    let path = env.absolute(&config.headers_file)?;
    read_headers(&path)
        .map_err(|message| Failure::config(format!("telemetry.headers_file: {message}")))
}

fn read_headers(path: &Path) -> std::result::Result<Vec<(String, String)>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |(number, line): (usize, &str)| {
        let (name, value) = line.split_once(':').ok_or(format!(
            "{}: line {number} is no `name: value`",
            path.display()
        ))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines
        .enumerate()
        .map(|(index, line)| pair((index + 1, line)))
        .collect()
}

/// Reads `name=value,name=value`, percent-encoded (W3C Baggage), as OpenTelemetry's variables have
/// it.
fn pairs(text: &str, between: char) -> std::result::Result<Vec<(String, String)>, String> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let pair = |part: &str| {
        // The text may be a secret, so it is not repeated.
        let (name, value) = part
            .split_once(between)
            .ok_or("must be name=value, separated by commas")?;
        let decoded =
            percent_decoded(value.trim()).ok_or("a value has a malformed percent-encoding")?;
        Ok((name.trim().to_owned(), decoded))
    };
    parts
        .map(pair)
        .collect::<std::result::Result<_, &str>>()
        .map_err(str::to_owned)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// Returns the attributes of this process.
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "nothing is exported")
)]
fn resource(config: &Config, env: &ProcessEnvironment) -> Result<Vec<(String, String)>> {
    let given = env.text("OTEL_RESOURCE_ATTRIBUTES")?.unwrap_or_default();
    let mut resource = pairs(given, '=')
        .map_err(|message| Failure::config(format!("OTEL_RESOURCE_ATTRIBUTES: {message}")))?;
    let instance = helmdeck_core::RequestId::random().to_string();
    for (name, value) in [
        ("service.name", config.service_name.as_str()),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance.as_str()),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.name", "helmdeck"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ] {
        // The name of the service is the operator's setting; other attributes of the variable win.
        if name == "service.name" {
            resource.retain(|(known, _)| known != name);
        }
        if !resource.iter().any(|(known, _)| known == name) {
            resource.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(variables: &[(&str, &str)]) -> ProcessEnvironment {
        ProcessEnvironment::of(variables)
    }

    #[test]
    fn settings_win_over_the_standard_variables() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_SERVICE_NAME", "deck"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
        ];
        let config = with_variables(&Config::default(), &env(&variables)).unwrap();
        assert_eq!(
            (config.endpoint.as_str(), config.protocol),
            ("http://localhost:4318", Protocol::Json)
        );
        assert_eq!(
            (config.service_name.as_str(), config.interval),
            ("deck", Duration::from_secs(5))
        );
        assert!((config.sample_ratio - 0.25).abs() < f64::EPSILON);
        let own = Config {
            endpoint: "http://own:1".into(),
            service_name: "own".into(),
            ..Config::default()
        };
        let config = with_variables(&own, &env(&variables)).unwrap();
        assert_eq!(
            (config.endpoint.as_str(), config.service_name.as_str()),
            ("http://own:1", "own")
        );
    }

    #[test]
    fn nothing_is_read_while_the_export_is_off() {
        let off = [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ];
        assert_eq!(
            with_variables(&Config::default(), &env(&off)).unwrap(),
            Config::default()
        );
        let other = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        assert_eq!(
            with_variables(&Config::default(), &env(&other)).unwrap(),
            Config::default()
        );
    }

    #[test]
    fn unusable_variables_are_named() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1m"),
        ] {
            let failure =
                with_variables(&Config::default(), &env(&[endpoint, (name, value)])).unwrap_err();
            assert!(failure.message().starts_with(name), "{}", failure.message());
        }
    }

    #[test]
    fn headers_of_the_variable_are_decoded_and_never_shown() {
        let read = |text: &str| pairs(text, '=');
        let wanted = [
            ("authorization".to_owned(), "Basic a=".to_owned()),
            ("x-scope".to_owned(), "t".to_owned()),
        ];
        assert_eq!(read("authorization=Basic%20a=, x-scope=t").unwrap(), wanted);
        let message = read("canary").unwrap_err();
        assert!(!message.contains("canary"), "{message}");
    }

    #[test]
    fn attributes_of_the_variable_are_kept() {
        let given = [(
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test,service.name=x",
        )];
        let resource = resource(&Config::default(), &env(&given)).unwrap();
        let value = |name: &str| {
            resource
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!(
            (value("deployment.environment.name"), value("service.name")),
            (Some("test"), Some("helmdeck"))
        );
        assert!(value("service.instance.id").is_some());
    }
}
