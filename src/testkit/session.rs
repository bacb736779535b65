use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use helmdeck_core::session::{Captured, Ended, Exec, Executed, Session};
use helmdeck_core::{Code, Error, Result, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Session without a sandbox, for tests of handlers.
///
/// Commands run in a temporary folder of this machine, and see it under its real path. Outputs are
/// kept whole. There are no memory or disk limits.
#[derive(Debug)]
pub struct FolderSession {
    _root: tempfile::TempDir,
    folder: PathBuf,
    supplies: PathBuf,
}

impl FolderSession {
    /// Makes a session with empty folders.
    ///
    /// # Panics
    /// If the folders cannot be created.
    #[must_use]
    pub fn new() -> Self {
        let root =
            tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        let (folder, supplies) = (root.path().join("folder"), root.path().join("supplies"));
        for path in [&folder, &supplies] {
            std::fs::create_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        Self {
            _root: root,
            folder,
            supplies,
        }
    }
}

impl Default for FolderSession {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Session for FolderSession {
    fn id(&self) -> &str {
        "test-session"
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn supplies(&self) -> &Path {
        &self.supplies
    }

    fn folder_inside(&self) -> &str {
        self.folder.to_str().unwrap_or_default()
    }

    fn supplies_inside(&self) -> &str {
        self.supplies.to_str().unwrap_or_default()
    }

    fn expires_at(&self) -> Timestamp {
        Timestamp(i64::MAX)
    }

    async fn exec(&self, command: Exec) -> Result<Executed> {
        let started = Instant::now();
        let failed = |error| {
            Error::new(Code::SessionUnavailable, "the command cannot be started").with_source(error)
        };
        let (program, arguments) = command
            .argv
            .split_first()
            .ok_or_else(|| Error::new(Code::InvalidInput, "the command is empty"))?;
        let mut child = Command::new(program);
        child
            .args(arguments)
            .current_dir(self.folder.join(&command.cwd))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.folder)
            .envs(&command.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = child.spawn().map_err(failed)?;
        let (mut stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let run = async {
            let feed = async {
                if let Some(mut stdin) = stdin.take() {
                    let _ = stdin.write_all(&command.stdin).await;
                }
            };
            let read_out = async {
                if let Some(mut pipe) = stdout {
                    let _ = pipe.read_to_end(&mut out).await;
                }
            };
            let read_err = async {
                if let Some(mut pipe) = stderr {
                    let _ = pipe.read_to_end(&mut err).await;
                }
            };
            tokio::join!(feed, read_out, read_err);
            child.wait().await
        };
        let ended = match tokio::time::timeout(command.timeout, run).await {
            Ok(status) => status
                .map_err(failed)?
                .code()
                .map_or(Ended::Signalled(9), Ended::Exited),
            Err(_) => Ended::TimedOut,
        };
        if command.merge_stderr {
            out.append(&mut err);
        }
        let captured = |bytes| Captured {
            head: bytes,
            tail: Vec::new(),
            left_out: 0,
        };
        let duration: Duration = started.elapsed();
        Ok(Executed {
            stdout: captured(out),
            stderr: captured(err),
            ended,
            duration,
        })
    }
}
