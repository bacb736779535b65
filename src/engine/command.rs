//! Handlers of kind `command`: a program that reads the input on stdin and writes the output on stdout.
//!
//! The program gets a short environment that is listed here, never ours; it runs in a process group of its own, and the
//! whole group is killed when the call ends, however it ends.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_core::{Code, Context, Error, Handler, Json, Reply, Result, Secret};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::config::CommandConfig;
use crate::descriptors::close_descriptors_on_exec;
use crate::group::Group;
use crate::program::Program;
use crate::quote::{self, Part};
use crate::scrub;

/// How much of stderr is kept for the log and the error's cause.
const STDERR_BYTES: usize = 4 << 10;
/// How much of it is looked through for secrets: as much more as the longest secret has in its longest form (JSON in base64).
const STDERR_READ: usize = STDERR_BYTES + (512 << 10);

/// The longest wait that a program can ask for.
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
    /// Finds the program: relative to the manifest's folder if it has a `/`, else in the configured search path.
    ///
    /// # Errors
    /// A message that names the program and where it was looked for.
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
            config
                .path
                .split(':')
                .map(|dir| Path::new(dir).join(name))
                .find(|path| path.is_file())
                .ok_or_else(|| format!("the program \"{name}\" is not in the search path {}", config.path))?
        };
        Ok(Self { program, arguments: arguments.to_vec(), env, folder: folder.to_owned(), config })
    }

    /// Returns the files of what runs: the program, and every argument that is a file in the manifest's folder (a script).
    pub(crate) fn program(&self) -> Program {
        let scripts = self
            .arguments
            .iter()
            .map(|argument| self.folder.join(argument))
            .filter(|path| path.starts_with(&self.folder) && path.is_file());
        Program::read(std::iter::once(self.program.clone()).chain(scripts).collect(), self.folder.clone())
    }

    fn spawn(&self) -> Result<Group> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", &self.config.path)
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .envs(&self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        close_descriptors_on_exec();
        let child = command.spawn().map_err(|error| {
            let code = if error.kind() == std::io::ErrorKind::OutOfMemory {
                Code::ResourceExhausted
            } else {
                Code::HandlerFailed
            };
            let why = cannot_run(&self.program).unwrap_or_else(|| missing(&self.program, &error));
            Error::new(code, format!("the program of the pack cannot be started: {why}")).with_source(error)
        })?;
        Ok(Group::new(child))
    }
}

#[async_trait]
impl Handler for CommandHandler {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let mut group = self.spawn()?;
        let gone = || Error::new(Code::Internal, "the program of the pack has no pipes");
        let stdin = group.child.stdin.take().ok_or_else(gone)?;
        let stdout = group.child.stdout.take().ok_or_else(gone)?;
        let stderr = group.child.stderr.take().ok_or_else(gone)?;
        let limit = usize::try_from(self.config.max_output_bytes).unwrap_or(usize::MAX);

        let ((), output, noise) =
            tokio::join!(feed(stdin, input.bytes().clone()), read_capped(stdout, limit), read_head(stderr));
        let output = output.map_err(|error| {
            Error::new(Code::HandlerFailed, "the program's output cannot be read").with_source(error)
        })?;
        let Some(output) = output else {
            group.kill();
            return Err(Error::new(Code::InvalidOutput, format!("the program wrote more than {limit} bytes")));
        };
        let status = group
            .wait()
            .await
            .map_err(|error| Error::new(Code::HandlerFailed, "the program was lost").with_source(error))?;

        let revealed = context.secrets.as_ref().map(|secrets| secrets.revealed()).unwrap_or_default();
        let told = (!status.success()).then(|| explained(&output, &noise, &revealed));
        // Cleaned before it is cut: half a secret would not be found.
        let mut noise = scrub::text(&String::from_utf8_lossy(&noise), &revealed).into_owned();
        noise.truncate(noise.floor_char_boundary(STDERR_BYTES));
        if let Some(told) = told {
            return Err(told.error(status).with_source(noise));
        }
        if !noise.trim().is_empty() {
            tracing::debug!(pack.name = %context.pack, stderr = noise, "a program wrote to stderr");
        }
        let output = trim(output);
        let place = |error: &serde_json::Error| format!("line {}, column {}", error.line(), error.column());
        Json::parse(output).map(Reply::json).map_err(|error| {
            let message = format!("the program's output is not one JSON document ({})", place(&error));
            Error::new(Code::InvalidOutput, message).with_source(error)
        })
    }
}

/// Says why the system will not run a file, if that can be seen from outside: it may not be executed, or it is a text without a
/// first line that names its interpreter (`execve(2)`).
fn cannot_run(path: &Path) -> Option<String> {
    let shown = path.display();
    let executable = std::fs::metadata(path).ok()?.permissions().mode() & 0o111 != 0;
    if !executable {
        return Some(format!("{shown} is not executable; run `chmod +x {shown}`"));
    }
    let mut start = [0; 512];
    let count = std::fs::File::open(path).and_then(|mut file| file.read(&mut start)).ok()?;
    let start = &start[..count];
    let is_text = !start.contains(&0) && std::str::from_utf8(&start[..start.len().min(64)]).is_ok();
    (is_text && !start.starts_with(b"#!"))
        .then(|| format!("{shown} has no first line that names its interpreter, like `#!/usr/bin/env python3`"))
}

/// Says why a program that can be run was not started.
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

/// A failed run of a program, with what the program says about it.
enum Failure {
    /// Explained by an [`Envelope`] on stdout: the caller gets its code and message.
    Error(Code, String, Option<Duration>),
    /// Explained by the end of stderr.
    Stderr(String),
    /// Not explained.
    Silent,
}

/// What a program may write to stdout before it exits with another status than 0.
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

/// The codes that a program may give; what happened to the call itself is for the engine to say.
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

fn explained(output: &[u8], noise: &[u8], secrets: &[Secret]) -> Failure {
    let envelope =
        serde_json::from_slice::<Envelope>(output).ok().filter(|told| PROGRAM_CODES.contains(&told.error.code));
    if let Some(Envelope { error }) = envelope
        && let Some(message) = quote::foreign(error.message.as_bytes(), secrets, Part::Head)
    {
        return Failure::Error(error.code, message, error.retry_after_ms.map(Duration::from_millis));
    }
    quote::foreign(noise, secrets, Part::Tail).map_or(Failure::Silent, Failure::Stderr)
}

impl Failure {
    fn error(self, status: ExitStatus) -> Error {
        let how = status
            .code()
            .map_or_else(|| "was killed by a signal".to_owned(), |code| format!("exited with status {code}"));
        match self {
            Self::Error(code, message, after) => {
                let error = Error::new(code, format!("the program says: {message}"));
                match after {
                    Some(after) => error.with_retry_after(after.min(MAX_WAIT)),
                    None => error,
                }
            }
            Self::Stderr(text) => {
                Error::new(Code::HandlerFailed, format!("the program {how}; its stderr ends: {text}"))
            }
            Self::Silent => Error::new(Code::HandlerFailed, format!("the program {how}")),
        }
    }
}

async fn feed(mut stdin: tokio::process::ChildStdin, input: Bytes) {
    // A program need not read its input; a broken pipe is its choice, not a failure.
    let _ = stdin.write_all(&input).await;
    let _ = stdin.shutdown().await;
}

/// Reads to the end; `None` if there is more than `limit`.
async fn read_capped(pipe: impl AsyncRead + Unpin, limit: usize) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut pipe = pipe.take(limit as u64 + 1);
    pipe.read_to_end(&mut bytes).await?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// Reads to the end, and keeps the first [`STDERR_READ`] bytes.
async fn read_head(mut pipe: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let room = STDERR_READ.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
    kept
}

fn trim(bytes: Vec<u8>) -> Bytes {
    let bytes = Bytes::from(bytes);
    let text = bytes.trim_ascii();
    bytes.slice_ref(text)
}
