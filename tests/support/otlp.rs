//! A collector that decodes OTLP with Google's generated classes (`otlp/collector.py`, from
//! `PyPI`).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::mcp::Programs;

/// A running collector. It ends when this value does.
pub(crate) struct Collector {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

/// One request that the collector took.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) signal: String,
    pub(crate) headers: Value,
    pub(crate) message: Value,
}

impl Collector {
    /// Starts a collector that answers the first `refused` requests with 503.
    pub(crate) fn refusing(refused: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/otlp/collector.py");
        let mut command = Programs::installed().python_program("python");
        command
            .arg(script)
            .arg(folder.path().join("received"))
            .arg(refused.to_string());
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("the collector did not start: {line:?}"));
        Self {
            process,
            port,
            folder,
        }
    }

    /// Returns the base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns everything that was taken so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        let text = std::fs::read_to_string(self.folder.path().join("received")).unwrap_or_default();
        let read = |line: &str| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let signal = line["signal"].as_str().unwrap().to_owned();
            Received {
                signal,
                headers: line["headers"].take(),
                message: line["message"].take(),
            }
        };
        text.lines().map(read).collect()
    }

    /// Returns the spans that were taken so far, `resourceSpans` and `scopeSpans` flattened.
    pub(crate) fn spans(&self) -> Vec<Value> {
        self.parts("traces", ["resourceSpans", "scopeSpans", "spans"])
    }

    /// Returns the log records that were taken so far.
    pub(crate) fn logs(&self) -> Vec<Value> {
        self.parts("logs", ["resourceLogs", "scopeLogs", "logRecords"])
    }

    /// Returns the metrics that were taken so far.
    pub(crate) fn metrics(&self) -> Vec<Value> {
        self.parts("metrics", ["resourceMetrics", "scopeMetrics", "metrics"])
    }

    fn parts(&self, signal: &str, path: [&str; 3]) -> Vec<Value> {
        let mut found: Vec<Value> = self
            .received()
            .into_iter()
            .filter(|one| one.signal == signal)
            .map(|one| one.message)
            .collect();
        for name in path {
            found = found
                .into_iter()
                .flat_map(|mut outer| {
                    outer[name]
                        .as_array_mut()
                        .map(std::mem::take)
                        .unwrap_or_default()
                })
                .collect();
        }
        found
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an attribute of a span, a log record or a point, as text.
pub(crate) fn attribute(of: &Value, name: &str) -> Option<String> {
    let attributes = of["attributes"].as_array()?;
    let value = &attributes
        .iter()
        .find(|attribute| attribute["key"] == name)?["value"];
    let (_, value) = value.as_object()?.iter().next()?;
    Some(
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    )
}
