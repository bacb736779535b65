//! Input of `swe.solve`.

use helmdeck_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};

/// The name of the model's credential.
pub(super) const MODEL_CREDENTIAL: &str = "llm";

/// The input, as its schema accepts it.
#[derive(Debug, Deserialize)]
pub(super) struct Input {
    pub(super) repo_url: String,
    pub(super) task: String,
    #[serde(rename = "ref")]
    pub(super) reference: Option<String>,
    pub(super) base_branch: Option<String>,
    pub(super) credential: Option<String>,
    pub(super) model: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) max_steps: u32,
    pub(super) max_seconds: Option<u64>,
    pub(super) max_cost: Option<f64>,
    pub(super) command_seconds: Option<u64>,
    pub(super) test_command: Option<String>,
    pub(super) mode: Mode,
    pub(super) trajectory_format: Format,
}

impl Input {
    /// Checks what a schema does not say.
    pub(super) fn check(&self) -> Result<()> {
        let blank = |name: &str| Err(Error::new(Code::InvalidInput, format!("{name} is blank")));
        if self.task.trim().is_empty() {
            return blank("task");
        }
        if self.credential.as_deref() == Some(MODEL_CREDENTIAL) {
            let message = format!(
                "credential {MODEL_CREDENTIAL:?} is that of the model, and goes to no repository"
            );
            return Err(Error::new(Code::InvalidInput, message));
        }
        match &self.test_command {
            Some(command) if command.trim().is_empty() => blank("test_command"),
            Some(command) if command.contains('\0') => Err(Error::new(
                Code::InvalidInput,
                "test_command holds a NUL character",
            )),
            _ => Ok(()),
        }
    }
}

/// Use of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// It is answered.
    Patch,
    /// It is pushed as a new branch too.
    Branch,
    /// A pull request is opened for that branch too.
    PullRequest,
}

/// Format of the trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Format {
    /// Our own.
    #[serde(rename = "helmdeck")]
    Helmdeck,
    /// That of mini-swe-agent 2, for the tools around it.
    #[serde(rename = "mini-swe-agent-1.1")]
    Mini,
}
