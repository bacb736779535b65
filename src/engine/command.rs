//! Handlers of kind `command`: a program that reads the input on stdin and writes the output on
//! stdout.
//!
//! The program inherits no environment variable; a traced call passes its W3C trace context as
//! `TRACEPARENT` and `TRACESTATE`. It runs in its own process group, which is killed when the call
//! ends for any reason.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_core::duration::size;
use helmdeck_core::{Code, Context, Error, Handler, Json, Reply, Result, Secret, Trace};
use helmdeck_process::{Capture, Failure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::program::Program;
use helmdeck_redact as redact;
use helmdeck_redact::quote::{self, TextEnd};

/// Settings of packs that run a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandConfig {
    /// Limit of stdout. Default 16 MiB.
    #[serde(with = "size")]
    pub max_output_bytes: u64,
    /// Search path of programs, and for names without a `/`. Default the usual system folders.
    pub path: String,
}

impl Default for CommandConfig {
    fn default() -> Self {
        Self {
            max_output_bytes: 16 << 20,
            path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        }
    }
}

/// How much of stderr is kept for the log and as the cause of an error.
const STDERR_BYTES: usize = 4 << 10;
/// How much of stderr is searched for secrets, in bytes.
///
/// More than is shown, by the size of the longest secret in its longest form (JSON in base64).
const STDERR_READ: usize = STDERR_BYTES + (512 << 10);

/// Limit of a retry time that a program can request.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A program behind a pack.
#[derive(Debug)]
pub(crate) struct CommandHandler {
    program: PathBuf,
    arguments: Vec<String>,
    env: BTreeMap<String, String>,
    folder: PathBuf,
    config: CommandConfig,
}

impl CommandHandler {
    /// Finds the program and prepares the handler.
    ///
    /// A name with a `/` is relative to the manifest's folder; any other is looked up in the search
    /// path.
    ///
    /// # Errors
    /// A message with the program and where it was searched.
    pub(crate) fn new(
        argv: &[String],
        env: BTreeMap<String, String>,
        folder: &Path,
        config: CommandConfig,
    ) -> Result<Self, String> {
        let (name, arguments) = argv.split_first().ok_or("command is empty")?;
        let program = if name.contains('/') {
            let path: PathBuf = folder.join(name).components().collect();
            if !path.is_file() {
                return Err(format!("the program {} does not exist", path.display()));
            }
            if let Some(why) = cannot_run(&path) {
                return Err(why);
            }
            path
        } else {
            helmdeck_process::find(name, &config.path).ok_or_else(|| {
                format!(
                    "the program \"{name}\" is not in the search path {}",
                    config.path
                )
            })?
        };
        Ok(Self {
            program,
            arguments: arguments.to_vec(),
            env,
            folder: folder.to_owned(),
            config,
        })
    }

    /// Returns the files that run: the program and its scripts.
    ///
    /// A script is an argument that is a file in the manifest's folder.
    pub(crate) fn program(&self) -> Program {
        let scripts = self
            .arguments
            .iter()
            .map(|argument| self.folder.join(argument))
            .filter(|path| path.starts_with(&self.folder) && path.is_file());
        Program::read(
            std::iter::once(self.program.clone())
                .chain(scripts)
                .collect(),
            self.folder.clone(),
        )
    }

    fn prepared(&self, trace: Option<&Trace>) -> Command {
        let mut command = helmdeck_process::command(&self.program, &self.config.path);
        if let Some(trace) = trace {
            command.env("TRACEPARENT", trace.context().to_string());
            command.envs(trace.state().map(|state| ("TRACESTATE", state)));
        }
        command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .envs(&self.env);
        command.into()
    }

    fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Start(error) => {
                let code = if error.kind() == std::io::ErrorKind::OutOfMemory {
                    Code::ResourceExhausted
                } else {
                    Code::HandlerFailed
                };
                let why =
                    cannot_run(&self.program).unwrap_or_else(|| missing(&self.program, &error));
                Error::new(
                    code,
                    format!("the program of the pack cannot be started: {why}"),
                )
                .with_source(error)
            }
            Failure::TooLarge(limit) => Error::new(
                Code::InvalidOutput,
                format!("the program wrote more than {limit} bytes"),
            ),
            failure => Error::new(Code::HandlerFailed, "the program was lost").with_source(failure),
        }
    }
}

#[async_trait]
impl Handler for CommandHandler {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let limit = usize::try_from(self.config.max_output_bytes).unwrap_or(usize::MAX);
        let (stdout, stderr) = (Capture::all(limit), Capture::head(STDERR_READ));
        let finished = helmdeck_process::run(
            &mut self.prepared(context.correlation.trace.as_ref()),
            input.bytes(),
            stdout,
            stderr,
        )
        .await;
        let finished = finished.map_err(|failure| self.failed(failure))?;
        let (status, output, noise) = (
            finished.status,
            finished.stdout.into_bytes(),
            finished.stderr.into_bytes(),
        );

        let revealed = context
            .secrets
            .as_ref()
            .map(|secrets| secrets.revealed())
            .unwrap_or_default();
        let failure = (!status.success()).then(|| explained(&output, &noise, &revealed));
        // Redacted before it is cut: half a secret would not be found.
        let mut noise = redact::text(&String::from_utf8_lossy(&noise), &revealed).into_owned();
        noise.truncate(noise.floor_char_boundary(STDERR_BYTES));
        if let Some(failure) = failure {
            return Err(failure.error(status).with_source(noise));
        }
        if !noise.trim().is_empty() {
            tracing::debug!(pack.name = %context.pack, stderr = noise, "a program wrote to stderr");
        }
        let output = trim(output);
        let place =
            |error: &serde_json::Error| format!("line {}, column {}", error.line(), error.column());
        Json::parse(output).map(Reply::json).map_err(|error| {
            let message = format!(
                "the program's output is not one JSON document ({})",
                place(&error)
            );
            Error::new(Code::InvalidOutput, message).with_source(error)
        })
    }
}

/// Explains why the system cannot run a file, if the file shows it (`execve(2)`).
///
/// The file is not executable, or it is a text without a first line that names its interpreter.
fn cannot_run(path: &Path) -> Option<String> {
    let shown = path.display();
    let executable = std::fs::metadata(path).ok()?.permissions().mode() & 0o111 != 0;
    if !executable {
        return Some(format!("{shown} is not executable; run `chmod +x {shown}`"));
    }
    let mut start = [0; 512];
    let count = std::fs::File::open(path)
        .and_then(|mut file| file.read(&mut start))
        .ok()?;
    let start = &start[..count];
    let is_text = !start.contains(&0) && std::str::from_utf8(&start[..start.len().min(64)]).is_ok();
    (is_text && !start.starts_with(b"#!")).then(|| {
        format!(
            "{shown} has no first line that names its interpreter, like `#!/usr/bin/env python3`"
        )
    })
}

/// Explains why an executable program was not started.
fn missing(path: &Path, error: &std::io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        std::io::ErrorKind::NotFound if path.is_file() => {
            format!("the interpreter on the first line of {shown} does not exist")
        }
        std::io::ErrorKind::NotFound => format!("{shown} does not exist"),
        _ => format!("{shown}: {error}"),
    }
}

/// Cause of a program's failure.
enum Explanation {
    /// An [`Envelope`] on stdout: the caller gets its code and message.
    Error(Code, String, Option<Duration>),
    /// The end of stderr.
    Stderr(String),
    /// Not explained.
    Silent,
}

/// Format of stdout of a failed program.
#[derive(Deserialize)]
struct Envelope {
    error: EnvelopeError,
}

#[derive(Deserialize)]
struct EnvelopeError {
    code: Code,
    message: String,
    retry_after_ms: Option<u64>,
}

/// The error codes that a program may use. The others describe the call and belong to the engine.
const PROGRAM_CODES: &[Code] = &[
    Code::InvalidInput,
    Code::Forbidden,
    Code::NotFound,
    Code::Conflict,
    Code::TooLarge,
    Code::CredentialInvalid,
    Code::RateLimited,
    Code::HandlerFailed,
];

fn explained(output: &[u8], noise: &[u8], secrets: &[Secret]) -> Explanation {
    let envelope = serde_json::from_slice::<Envelope>(output)
        .ok()
        .filter(|failure| PROGRAM_CODES.contains(&failure.error.code));
    if let Some(Envelope { error }) = envelope
        && let Some(message) = quote::foreign(error.message.as_bytes(), secrets, TextEnd::Head)
    {
        return Explanation::Error(
            error.code,
            message,
            error.retry_after_ms.map(Duration::from_millis),
        );
    }
    quote::foreign(noise, secrets, TextEnd::Tail).map_or(Explanation::Silent, Explanation::Stderr)
}

impl Explanation {
    fn error(self, status: ExitStatus) -> Error {
        let how = status.code().map_or_else(
            || "was killed by a signal".to_owned(),
            |code| format!("exited with status {code}"),
        );
        match self {
            Self::Error(code, message, after) => {
                let error = Error::new(code, format!("the program says: {message}"));
                match after {
                    Some(after) => error.with_retry_after(after.min(MAX_WAIT)),
                    None => error,
                }
            }
            Self::Stderr(text) => Error::new(
                Code::HandlerFailed,
                format!("the program {how}; its stderr ends: {text}"),
            ),
            Self::Silent => Error::new(Code::HandlerFailed, format!("the program {how}")),
        }
    }
}

fn trim(bytes: Vec<u8>) -> Bytes {
    let bytes = Bytes::from(bytes);
    let text = bytes.trim_ascii();
    bytes.slice_ref(text)
}
