//! Logging to stderr: text on a terminal, JSON lines otherwise.
//!
//! No secret is logged. Of a panic only the location is logged, because its message may contain
//! anything.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use helmdeck_core::{Correlation, Trace};

use crate::config::LogFormat;

/// Log level of a command. Its failed call is its own result, so it is not logged too.
pub(crate) const WARN: &str = "warn,helmdeck_engine::layers::observe=off";

/// Log level of a command with `-q`.
const QUIET: &str = "error,helmdeck_engine::layers::observe=off";

/// Handle that changes the filter of the running log.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Validates a log level: a level, or targets with levels (`info,helmdeck_engine=debug`).
///
/// Empty text is valid.
///
/// # Errors
/// A message that names the invalid part.
pub(crate) fn check(level: &str) -> Result<(), String> {
    for part in level
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (target, name) = part.split_once('=').unwrap_or(("x", part));
        // A bare word that is no level would be taken for a target, and a typing error would turn
        // everything on.
        if target.is_empty() || !LEVELS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(format!(
                "\"{part}\" is not a level ({}) or target=level",
                LEVELS.join(", ")
            ));
        }
    }
    Ok(())
}

/// Starts the log. A level that the operator set wins over the command's own, and `-v` and `-q`
/// over both.
pub(crate) fn start(level: &str, format: LogFormat, default: &str, verbose: u8, quiet: bool) {
    let (targets, handle) = reload::Layer::new(targets(level, default, verbose, quiet));
    let terminal = io::stderr().is_terminal();
    let layer = match (format, terminal) {
        (LogFormat::Json, _) | (LogFormat::Auto, false) => {
            let lines = fmt::layer()
                .json()
                .flatten_event(true)
                .with_writer(|| Line { json: true });
            lines
                .and_then(exported().clone())
                .with_filter(targets)
                .boxed()
        }
        _ => {
            let lines = fmt::layer()
                .with_ansi(terminal)
                .with_writer(|| Line { json: false });
            lines
                .and_then(exported().clone())
                .with_filter(targets)
                .boxed()
        }
    };
    // Fails only if a log was started before; then that one goes on.
    if tracing_subscriber::registry()
        .with(layer)
        .try_init()
        .is_ok()
    {
        let _ = FILTER.set(handle);
    }
}

/// Returns the layer that exports log records, once the export is connected to it.
#[cfg(feature = "otlp")]
pub(crate) fn exported() -> &'static helmdeck_telemetry::LogLayer {
    static LAYER: std::sync::LazyLock<helmdeck_telemetry::LogLayer> =
        std::sync::LazyLock::new(Default::default);
    &LAYER
}

/// Returns a layer that does nothing: this build exports nothing.
#[cfg(not(feature = "otlp"))]
fn exported() -> &'static tracing_subscriber::layer::Identity {
    static LAYER: std::sync::LazyLock<tracing_subscriber::layer::Identity> =
        std::sync::LazyLock::new(Default::default);
    &LAYER
}

/// Writer of one log line to stderr. Adds the current request and trace.
struct Line {
    json: bool,
}

impl Write for Line {
    /// Gets a whole line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let added = Correlation::with_current(|current| added(current, self.json));
        let end = if self.json { b"}\n".as_slice() } else { b"\n" };
        match line.strip_suffix(end).filter(|_| !added.is_empty()) {
            Some(start) => io::stderr().write_all(&[start, added.as_bytes(), end].concat())?,
            None => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Returns what a line gets: request id, trace id and span id, if there are any.
fn added(current: &Correlation, json: bool) -> String {
    let context = current.trace.as_ref().map(Trace::context);
    let fields = [
        (
            "request_id",
            current.request_id.as_ref().map(ToString::to_string),
        ),
        (
            "trace_id",
            context.map(|context| format!("{:032x}", context.trace_id)),
        ),
        (
            "span_id",
            context.map(|context| format!("{:016x}", context.span_id)),
        ),
    ];
    let mut text = String::new();
    for (name, value) in fields {
        let Some(value) = value else { continue };
        if json {
            // As text of JSON: a caller's id may contain quotes.
            text.push_str(&format!(",\"{name}\":{}", serde_json::Value::from(value)));
        } else {
            text.push_str(&format!(" {name}={value}"));
        }
    }
    text
}

/// Changes the level of the log that was started, by the same rules.
#[cfg(feature = "serve")]
pub(crate) fn set_level(level: &str, default: &str, verbose: u8, quiet: bool) {
    if let Some(filter) = FILTER.get() {
        // Fails only if the log is gone.
        let _ = filter.reload(targets(level, default, verbose, quiet));
    }
}

fn targets(level: &str, default: &str, verbose: u8, quiet: bool) -> Targets {
    let wanted = match verbose {
        // With `--json`, nothing is logged by default.
        0 if quiet && default != "off" => QUIET,
        0 if level.trim().is_empty() => default,
        0 => level,
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    // The configuration was checked, so this can be read.
    let targets: Targets = wanted
        .parse()
        .unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    without_rmcp(targets)
}

/// Turns off the log of rmcp, whatever level is set.
///
/// rmcp logs whole messages, and answers of servers in its errors, which may hold secrets. This
/// program logs the important parts itself, without them.
fn without_rmcp(targets: Targets) -> Targets {
    let default = targets.default_level().unwrap_or(LevelFilter::OFF);
    let others = targets
        .into_iter()
        .filter(|(target, _)| target != "rmcp" && !target.starts_with("rmcp::"));
    others
        .collect::<Targets>()
        .with_default(default)
        .with_target("rmcp", LevelFilter::OFF)
}

/// Limits the message of a panic to its location.
pub(crate) fn hide_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        if tracing::dispatcher::has_been_set() {
            tracing::error!(place, "panicked");
        } else {
            let _ = writeln!(io::stderr().lock(), "helmdeck: panicked at {place}");
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "panics; the test below starts it in a process of its own"]
    fn a_panic_with_a_secret() {
        hide_panics();
        let secret = "canary".repeat(2);
        panic!("token {secret} was refused");
    }

    #[test]
    fn a_panic_tells_its_place_and_never_its_text() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "logging::tests::a_panic_with_a_secret",
                "--ignored",
                "--nocapture",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[child.stdout, child.stderr].concat()).into_owned();
        assert!(
            !child.status.success() && text.contains("panicked at"),
            "{text}"
        );
        assert!(!text.contains("canarycanary"), "{text}");
    }

    #[test]
    fn lines_name_their_request_and_trace() {
        let request_id = helmdeck_core::RequestId::given(b"a\"b");
        let trace = Trace::received(
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            None,
        );
        let current = Correlation { request_id, trace };
        let json = format!("{{\"level\":\"INFO\"{}}}", added(&current, true));
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&line["request_id"], &line["span_id"]),
            (&"a\"b".into(), &"00f067aa0ba902b7".into())
        );
        let text = added(&current, false);
        assert!(
            text.starts_with(" request_id=a\"b trace_id=4bf92f3577b34da6a3ce929d0e0e4736"),
            "{text}"
        );
        assert_eq!(added(&Correlation::default(), true), "");
    }

    #[test]
    fn nothing_of_rmcp_is_logged_whatever_is_asked_for() {
        for wanted in [
            "trace",
            "info,rmcp=debug",
            "rmcp::transport=trace,helmdeck_engine=debug",
            "off,rmcp::service=warn",
        ] {
            let targets = without_rmcp(wanted.parse().unwrap());
            for target in [
                "rmcp",
                "rmcp::transport",
                "rmcp::transport::worker",
                "rmcp::service",
            ] {
                assert!(
                    !targets.would_enable(target, &tracing::Level::ERROR),
                    "{wanted}: {target}"
                );
            }
        }
        let targets = without_rmcp("info,helmdeck_engine=debug".parse().unwrap());
        assert!(targets.would_enable("helmdeck_engine::mcp", &tracing::Level::DEBUG));
        assert!(targets.would_enable("helmdeck_cli", &tracing::Level::INFO));
        assert!(!targets.would_enable("helmdeck_cli", &tracing::Level::DEBUG));
    }

    #[test]
    fn flags_win_over_the_level_that_is_set() {
        let logs =
            |level: &str, default: &str, verbose: u8, quiet: bool, wanted: tracing::Level| {
                targets(level, default, verbose, quiet).would_enable("helmdeck_engine", &wanted)
            };
        assert!(logs("", "info", 0, false, tracing::Level::INFO));
        assert!(!logs("debug", "info", 0, true, tracing::Level::WARN));
        assert!(logs("debug", "info", 0, true, tracing::Level::ERROR));
        assert!(!logs("", "off", 0, true, tracing::Level::ERROR));
        assert!(logs("error", WARN, 1, false, tracing::Level::INFO));
    }

    #[test]
    fn levels_and_targets_are_understood_and_typing_errors_are_not_targets() {
        for good in ["", "info", "WARN", "info,helmdeck_engine=debug", "off"] {
            assert_eq!(check(good), Ok(()), "{good}");
            assert!(good.is_empty() || good.parse::<Targets>().is_ok(), "{good}");
        }
        for bad in ["debg", "info,debg", "a=b", "a=b=c", "=info"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
