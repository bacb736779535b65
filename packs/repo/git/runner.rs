//! The runner: git on clean repositories, without a network.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Code, Error, Result};
use helmdeck_egress::Egress;
use tempfile::TempDir;
use tokio::process::Command;

use super::config::Config;
use super::process::{Finished, run};
use super::settings::Settings;

/// The longest run of git. The deadline of the call is usually shorter.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// The default limit for the output of git, in bytes.
pub(super) const MAX_OUTPUT: usize = 64 << 20;

/// Runner for git. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Git {
    pub(super) config: Arc<Config>,
    pub(super) egress: Egress,
}

impl Git {
    /// Makes a runner. Starts nothing yet.
    pub(crate) fn new(config: Config, egress: Egress) -> Self {
        Self {
            config: Arc::new(config),
            egress,
        }
    }

    /// Returns the operator's settings.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Runs git on a clean repository of ours, without any network, and returns how it ended.
    ///
    /// `folder` is the repository, or where one is made; `variables` are added to git's
    /// environment.
    ///
    /// # Errors
    /// `internal` if git cannot be started; `timeout`; `too_large` if it prints more than a run
    /// may.
    pub(crate) async fn local(
        &self,
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        stdin: Bytes,
    ) -> Result<Finished> {
        let scratch = scratch()?;
        let mut command = self.command(scratch.path(), &Settings::offline());
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .current_dir(folder);
        run(command, stdin, MAX_OUTPUT, LONGEST).await
    }

    /// Runs git as [`Git::local`] does, and returns its output.
    ///
    /// # Errors
    /// As [`Git::local`]; `internal` if git fails.
    pub(crate) async fn local_text(
        &self,
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        stdin: Bytes,
    ) -> Result<String> {
        let finished = self.local(folder, arguments, variables, stdin).await?;
        if !finished.succeeded() {
            let name = arguments.first().copied().unwrap_or_default();
            let message = format!("git {name} failed on a repository of helmdeck's own");
            return Err(Error::new(Code::Internal, message).with_source(finished.stderr));
        }
        Ok(String::from_utf8_lossy(&finished.stdout)
            .trim_end()
            .to_owned())
    }

    /// Prepares git without any variable of this process.
    pub(super) fn command(&self, home: &Path, settings: &Settings) -> Command {
        let mut command = helmdeck_process::command(&self.config.program, &self.config.path);
        command
            .env("HOME", home)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            // What a repository says of itself must not take all memory of this machine.
            .env("GIT_ALLOC_LIMIT", "1g")
            .envs(settings.variables());
        command.into()
    }
}

/// Makes an empty folder that only this user can read. It is removed when it is dropped.
pub(super) fn scratch() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("helmdeck-git-")
        .tempdir()
        .map_err(|error| {
            Error::new(Code::ResourceExhausted, "no temporary folder can be made")
                .with_source(error)
        })
}
